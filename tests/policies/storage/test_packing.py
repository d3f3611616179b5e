"""Integers of few bits in the bytes of a file."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.policies.storage.packing import pack_integers, unpack_integers
from quarl_bench.quantization.affine import IntegerFormat


@given(
    format=st.builds(IntegerFormat, st.integers(2, 8), st.booleans(), st.booleans()).filter(lambda f: f.maximum < 128),
    shape=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_was_packed_is_unpacked(format: IntegerFormat, shape: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed).integers(format.minimum, format.maximum, size=shape, endpoint=True)
    integers = draw.astype(np.int8)
    packed = pack_integers(integers, format)
    assert packed.nbytes == -(-integers.size * format.bit_width // 8)
    again = unpack_integers(packed, shape, format)
    assert (again.dtype, again.tolist()) == (integers.dtype, integers.tolist())


def test_bytes_are_these() -> None:
    # Distances from -7: 0, 7, 14, then zeros to the end of the second byte.
    assert pack_integers(np.array([-7, 0, 7], np.int8), IntegerFormat(4, narrow_range=True)).tolist() == [0x07, 0xE0]


@pytest.mark.parametrize("shape", [(3, 5), (2, 4), (0,)])
def test_another_number_of_bytes_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"5 bytes for \d+ integers of 3 bits"):
        unpack_integers(np.zeros(5, np.uint8), shape, IntegerFormat(3))
