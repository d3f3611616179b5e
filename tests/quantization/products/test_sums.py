"""Sums over bytes and over floats are the sums of the integers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.net import Conv2d, Linear
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.products.sums import (
    EXACT_FLOAT32,
    LARGE,
    ByteSums,
    FloatSums,
    build_sums,
    multiplies_bytes,
)
from tests.support.layers import find_largest_sum

needs_bytes = pytest.mark.skipif(not multiplies_bytes(), reason="torch does not multiply bytes exactly here")


def make_layer(weight, bias, stride=1):
    one = np.ones(1, np.float32)
    kind = Linear if weight.ndim == 2 else Conv2d
    output = ActivationFormat(IntegerFormat(8), np.float32(1), 0)
    return QuantizedLayer(kind, Activation.NONE, stride, weight, one, IntegerFormat(8), bias, output)


def add_by_hand(layer, q, source):
    weight, x = layer.weight.astype(np.int64), q - source.zero_point
    if layer.kind is Linear:
        return x @ weight.T + layer.bias
    rows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], (2, 3))[:, :, :: layer.stride, :: layer.stride]
    return np.einsum("nihwrc,oirc->nohw", rows, weight) + layer.bias.reshape(-1, 1, 1)


@needs_bytes
@given(
    st.sampled_from([(5, 7), (3, 1500), (2, 3, 4, 4), (4, 300, 3, 3)]),
    st.sampled_from([0, 2**10, 2**30]),
    st.integers(2, 8),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_bytes_and_floats_add_up_to_the_integers(shape, bias, bits, largest, seed):
    """Whatever zero point and width the inputs have, and with sums that fill 32 bits."""
    rng = np.random.default_rng(seed)
    integers = IntegerFormat(bits)
    source = ActivationFormat(integers, np.float32(1), int(rng.integers(integers.minimum, integers.maximum + 1)))
    weight = rng.integers(-128, 128, shape).astype(np.int8)
    if largest:
        weight = np.full(shape, 127, np.int8)
    layer = make_layer(weight, rng.integers(-bias, bias + 1, shape[0]).astype(np.int32), stride=int(rng.integers(1, 3)))
    q = rng.integers(integers.minimum, integers.maximum + 1, (2, shape[1], *([6, 5] if len(shape) == 4 else [])))
    q[0] = integers.maximum if source.zero_point < 0 else integers.minimum
    expected, bound = add_by_hand(layer, q, source), find_largest_sum(layer, source)
    for kind in (ByteSums.build(layer, source, bound), FloatSums.build(layer, bound)):
        found = kind.add_up(torch.from_numpy(q - source.zero_point).to(torch.float32)).numpy()
        np.testing.assert_array_equal(found.astype(np.int64), expected)


@needs_bytes
def test_inputs_are_parted_where_float32_could_not_hold_the_sum():
    source = ActivationFormat(IntegerFormat(8), np.float32(1), -128)
    layer = make_layer(np.full((1, 3136), 127, np.int8), np.int32([1]))
    sums = ByteSums.build(layer, source, find_largest_sum(layer, source))
    assert len(sums.parts) > 3136 * 127 * 255 // EXACT_FLOAT32
    assert sums.add_up(torch.full((1, 3136), 255.0)).item() == 3136 * 127 * 255 + 1


@pytest.mark.parametrize("kind, shape", [(Linear, (2, 8)), (Linear, (2, LARGE // 2)), (Conv2d, (2, 3, 2, 2))])
def test_bytes_are_for_large_layers(kind, shape):
    """A call on bytes costs more than a small product, and another torch, or processor, may have none."""
    source = ActivationFormat(IntegerFormat(8), np.float32(1), 0)
    layer = make_layer(np.ones(shape, np.int8), np.zeros(2, np.int32))
    large = kind is Conv2d or layer.weight.size >= LARGE
    assert isinstance(build_sums(layer, source), ByteSums) == (large and multiplies_bytes())


def test_a_torch_without_products_of_bytes_adds_up_floats(monkeypatch):
    monkeypatch.setattr(torch.ops, "onednn", SimpleNamespace())
    multiplies_bytes.cache_clear()
    source = ActivationFormat(IntegerFormat(8), np.float32(1), 0)
    layer = make_layer(np.ones((2, 3, 2, 2), np.int8), np.zeros(2, np.int32))
    assert isinstance(build_sums(layer, source), FloatSums)
    multiplies_bytes.cache_clear()


def test_products_that_saturate_are_not_taken(monkeypatch):
    """Processors without VNNI add two products in 16 bits."""
    exact = torch.ops.onednn.qconv2d_pointwise if multiplies_bytes() else None
    if exact is None:
        pytest.skip("torch does not multiply bytes exactly here")
    saturating = SimpleNamespace(
        qconv_prepack=torch.ops.onednn.qconv_prepack,
        qconv2d_pointwise=lambda *arguments: exact(*arguments).clamp(-32768, 32767),
    )
    monkeypatch.setattr(torch.ops, "onednn", saturating)
    multiplies_bytes.cache_clear()
    assert not multiplies_bytes()
    multiplies_bytes.cache_clear()
