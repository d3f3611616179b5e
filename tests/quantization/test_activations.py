"""Every elementwise function: its two forms agree, its table keeps its margin and wastes no integers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import PolicyError
from quarl_bench.quantization.activations import (
    ELEMENTWISE,
    Activation,
    find_activation,
    is_tabled,
    make_module,
)
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.parameters import has_margin, make_table
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.training.aware_net import find_path, make_aware
from tests.support.strategies import inputs_of, make_net

TABLED = [activation for activation in Activation if is_tabled(activation)]
every = pytest.mark.parametrize("activation", Activation)


def quantize(activation: Activation, low: float, high: float, scheme: str) -> QuantizedNet:
    """One weight of 1, for sums from `low` to `high`."""
    net = Net((1,), (Linear(np.float32([[1]]), np.float32([0]), activation),))
    quantized = quantize_net(net, Scheme.parse(scheme), np.float32([[low], [high]]))
    assert isinstance(quantized, QuantizedNet)
    return quantized


@every
def test_torch_and_the_formula_agree(activation: Activation) -> None:
    x = np.linspace(-40, 40, 80_001)
    found = make_module(activation)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, ELEMENTWISE[activation].exact(x), rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(ELEMENTWISE[activation].apply(torch.from_numpy(x)).numpy(), found)


@every
def test_modules_are_recognised(activation: Activation) -> None:
    found = find_activation(make_module(activation))
    assert found == (None if activation is Activation.NONE else activation)


@pytest.mark.parametrize("module", [
    torch.nn.ELU(0.5), torch.nn.LeakyReLU(0.2), torch.nn.Softplus(2.0), torch.nn.Hardtanh(-2, 2),
])  # fmt: skip
def test_other_parameters_are_another_function(module: torch.nn.Module) -> None:
    with pytest.raises(PolicyError, match="has no portable form; use"):
        find_activation(module)


@given(
    st.sampled_from(TABLED), st.floats(-100, 100), st.floats(1e-3, 200), st.integers(2, 8),
    st.sampled_from(["", "sym", "pow2", "sympow2"]),
)  # fmt: skip
def test_tables_keep_their_margin(activation: Activation, low: float, width: float, bits: int, options: str) -> None:
    name = Scheme.parse(f"int{bits}{options}").name
    layer = quantize(activation, low, low + width, name).layers[0]
    assert layer.tabled is not None
    basic = ELEMENTWISE[activation].basic and "pow2" in options
    assert basic or has_margin(activation, layer.output, layer.tabled)
    # float32 of another library, times the reciprocal: the same table
    x = layer.output.dequantize(np.arange(layer.output.format.minimum, layer.output.format.maximum + 1))
    y = ELEMENTWISE[activation].apply(torch.from_numpy(np.float32(x))).numpy()
    if not basic:
        np.testing.assert_array_equal(layer.tabled.quantize(y), layer.table)


@pytest.mark.parametrize("activation", TABLED)
def test_eight_bits_are_near_the_function(activation: Activation) -> None:
    """Within a step of the sum, which the slope carries over, and one of the result."""
    quantized = quantize(activation, -30.0, 8.0, "int8")
    layer = quantized.layers[0]
    assert layer.tabled is not None
    x = np.linspace(-30, 8, 5001).astype(np.float32)[:, None]
    error = np.abs(IntegerNet.from_quantized(quantized).forward(x)[:, 0] - ELEMENTWISE[activation].exact(x[:, 0]))
    slope = 1.13  # the steepest, of SiLU and GELU; SELU's is below 1.76
    slope = 1.76 if activation is Activation.SELU else slope
    assert error.max() <= slope * (float(layer.output.scale) + float(quantized.input.scale)) + float(layer.tabled.scale)
    if activation not in (Activation.LEAKY_RELU, Activation.SOFTSIGN):  # flat below: -30 is not worth an integer
        assert layer.output.scale < 38 / 255 / 1.5


@pytest.mark.parametrize("activation", TABLED)
def test_training_with_the_quantizer_is_what_integers_compute(activation: Activation) -> None:
    net = make_net(5, 16, 3, activation=activation, seed=3)
    x = inputs_of(net, 500, spread=2.0)
    modules = torch.nn.Sequential(torch.nn.Linear(5, 16), make_module(activation), torch.nn.Linear(16, 3))
    for index, layer in ((0, net.layers[0]), (2, net.layers[1])):
        modules[index].load_state_dict({"weight": torch.tensor(layer.weight), "bias": torch.tensor(layer.bias)})
    make_aware(modules, list(modules), Scheme.parse("qat8"))
    path = find_path(list(modules))
    modules(torch.from_numpy(x))
    path.freeze(net)
    quantized = path.export(net)
    with torch.inference_mode():
        hidden = modules[1](modules[0](torch.from_numpy(x))).numpy()
    expected = quantized.layers[0].result.dequantize(
        IntegerNet.from_quantized(quantized).trace(quantized.input.quantize(x))[0]
    )
    assert (np.abs(hidden - expected) > 1e-6).mean() < 1e-3  # sums of float32 on a tie
    loss = modules(torch.from_numpy(x)).sum()
    loss.backward()
    assert modules[0].weight.grad.abs().sum() > 0


def test_a_table_is_the_rounded_function() -> None:
    layer = quantize(Activation.SILU, -8.0, 8.0, "int8").layers[0]
    assert layer.tabled is not None
    table = make_table(Activation.SILU, layer.output, layer.tabled)
    for integer in (-128, -90, -61, 0, 17, 127):
        x = (integer - layer.output.zero_point) * float(layer.output.scale)
        expected = round(x / (1 + np.exp(-x)) / float(layer.tabled.scale)) + layer.tabled.zero_point
        assert table[integer + 128] == min(max(expected, -128), 127)
    assert (np.diff(table) < 0).any()  # it falls before it rises
