"""Integers of few bits, one behind another in the bytes of a file: 2 bits take a quarter of what int8 takes.

Each integer is its distance from the smallest of its format, the highest bit first. Zeros fill the last byte.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quarl_bench.quantization.affine import IntegerFormat


def pack_integers(integers: NDArray[np.int8], format: IntegerFormat) -> NDArray[np.uint8]:
    """The bytes of `integers`, of any shape and of up to 8 bits, all of which lie in `format`."""
    distances = (integers.reshape(-1, 1).astype(np.int16) - format.minimum).astype(np.uint8)
    return np.packbits(np.unpackbits(distances, axis=1)[:, -format.bit_width :])


def unpack_integers(packed: NDArray[np.uint8], shape: Sequence[int], format: IntegerFormat) -> NDArray[np.int8]:
    """Inverse of `pack_integers`; ValueError for another number of bytes than `shape` takes."""
    count, width = math.prod(shape), format.bit_width
    if packed.shape != (math.ceil(count * width / 8),):
        raise ValueError(f"{packed.size} bytes for {count} integers of {width} bits")
    bits = np.zeros((count, 8), dtype=np.uint8)
    bits[:, -width:] = np.unpackbits(packed, count=count * width).reshape(count, width)
    distances = np.packbits(bits, axis=1).reshape(shape)
    return (distances.astype(np.int16) + format.minimum).astype(np.int8)
