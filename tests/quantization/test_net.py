"""The fp32 net: its forward pass written out, and the nets it refuses."""

import numpy as np
import pytest
from hypothesis import given

from quarl_bench.errors import PolicyError
from quarl_bench.quantization.activations import ELEMENTWISE
from quarl_bench.quantization.net import Conv2d, Floats, Layer, Linear, Net
from tests.support.strategies import convolutions, inputs_of, make_net, perceptrons


def run_by_hand(net: Net, x: Floats) -> np.ndarray:
    """Float64 loops over windows."""
    y = x.astype(np.float64)
    for layer in net.layers:
        weight, bias = layer.weight.astype(np.float64), layer.bias.astype(np.float64)
        if isinstance(layer, Linear):
            y = y.reshape(len(y), -1) @ weight.T + bias
        else:
            outputs, height, width = layer.output_shape(y.shape[1:])
            rows, columns = weight.shape[2:]
            out = np.empty((len(y), outputs, height, width))
            for i in range(height):
                for j in range(width):
                    top, left = i * layer.stride, j * layer.stride
                    window = y[:, None, :, top : top + rows, left : left + columns]
                    out[:, :, i, j] = (window * weight).sum((2, 3, 4)) + bias
            y = out
        y = ELEMENTWISE[layer.activation].exact(y)
    return y


@given(perceptrons() | convolutions())
def test_forward_is_the_formula(net: Net) -> None:
    x = inputs_of(net, 4)
    found, expected = net.forward(x), run_by_hand(net, x)
    assert found.dtype == np.float32
    assert found.shape == (4, net.outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * (1 + np.abs(expected).max()))


def test_counts() -> None:
    net = make_net(3, 5, 2)
    assert (net.outputs, net.parameters) == (2, 3 * 5 + 5 + 5 * 2 + 2)


def test_forward_leaves_input_and_weights_alone() -> None:
    net, x = make_net(3, 5, 2), np.ones((2, 3), np.float32)
    before = [layer.weight.copy() for layer in net.layers]
    net.forward(x)
    assert (x == 1).all()
    assert all((old == layer.weight).all() for old, layer in zip(before, net.layers, strict=True))


def _linear(outputs: int, inputs: int) -> Linear:
    return Linear(np.ones((outputs, inputs), np.float32), np.zeros(outputs, np.float32))


def _conv(outputs: int, inputs: int, kernel: int) -> Conv2d:
    return Conv2d(np.ones((outputs, inputs, kernel, kernel), np.float32), np.zeros(outputs, np.float32))


def _damaged(value: float) -> Linear:
    return Linear(np.full((2, 3), value, np.float32), np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "shape, layers, said",
    [
        ((3,), (), "at least one layer"),
        ((3,), (_linear(2, 4),), "4 inputs cannot follow"),
        ((3,), (_linear(4, 3), _linear(2, 5)), "5 inputs cannot follow"),
        ((3,), (_conv(2, 3, 1),), "cannot follow the shape"),
        ((2, 5, 5), (_conv(2, 3, 3),), "cannot follow the shape"),
        ((3, 2, 5), (_conv(2, 3, 3),), "cannot follow the shape"),
        ((3,), (Linear(np.ones((2, 3), np.float32), np.zeros(3, np.float32)),), "do not belong together"),
        ((3,), (Linear(np.ones(3, np.float32), np.zeros(3, np.float32)),), "do not belong together"),
        ((3, 4, 4), (Conv2d(np.ones((2, 48), np.float32), np.zeros(2, np.float32)),), "do not belong together"),
        ((3,), (Linear(np.ones((2, 3)), np.zeros(2)),), "must be float32"),
        ((3,), (_damaged(np.nan),), "layer 0 .* NaN or infinite"),
        ((3,), (_linear(3, 3), _damaged(np.inf)), "layer 1 .* NaN or infinite"),
    ],
    ids=range(12),
)
def test_refused(shape: tuple[int, ...], layers: tuple[Layer, ...], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Net(shape, layers)
