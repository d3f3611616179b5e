"""Post-training quantization of weights and the calibration of activations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.net import Conv2d, Floats, Linear, Net
from quarl_bench.quantization.ptq import count_levels, quantize_net
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import convolutions, inputs_of, make_net, normal, perceptrons

NETS = perceptrons() | convolutions()


def quantize(net: Net, name: str) -> Net:
    """`net` under a scheme that ends in a Net."""
    quantized = quantize_net(net, Scheme.parse(name))
    assert isinstance(quantized, Net)
    return quantized


def make_big_net(seed: int = 0) -> Net:
    """A convolution of 5 channels and a Linear of 7, each channel with another spread and over 256 weights."""
    rng = np.random.default_rng(seed)
    spread = np.exp2(np.arange(7)).astype(np.float32)
    conv = Conv2d(normal(rng, 5, 8, 9, 9) * spread[:5, None, None, None], normal(rng, 5), 1, Activation.RELU)
    return Net((8, 16, 16), (conv, Linear(normal(rng, 7, 320) * spread[:, None], normal(rng, 7))))


def expected_weight(weight: Floats, bits: int, *, per_channel: bool) -> Floats:
    """QuaRL's formula with rounding to nearest, channel by channel, in plain NumPy."""
    rows = weight.reshape(len(weight), -1).astype(np.float64) if per_channel else weight.reshape(1, -1).astype(float)
    out = np.empty_like(rows)
    for row, result in zip(rows, out, strict=True):
        low, high = min(row.min(), 0), max(row.max(), 0)
        delta = (high - low) / 2**bits
        z = min(round(-low / delta), 2**bits - 1)
        result[:] = delta * (np.clip(np.rint(row / delta) + z, 0, 2**bits - 1) - z)
    return out.reshape(weight.shape).astype(np.float32)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize(
    "option, linear, convolution",
    [("", False, True), ("pt", False, False), ("pc", True, True)],
    ids=["default", "pt", "pc"],
)
def test_scales_per_tensor_for_linear_and_per_channel_for_convolutions(
    bits: int, option: str, linear: bool, convolution: bool
) -> None:
    net = make_big_net()
    quantized = quantize(net, f"w{bits}{option}")
    for layer, rounded in zip(net.layers, quantized.layers, strict=True):
        per_channel = convolution if isinstance(layer, Conv2d) else linear
        expected = expected_weight(layer.weight, bits, per_channel=per_channel)
        np.testing.assert_array_equal(rounded.weight, expected)
        assert not np.array_equal(rounded.weight, expected_weight(layer.weight, bits, per_channel=not per_channel))


@pytest.mark.parametrize("bits", [2, 3, 5, 8])
@pytest.mark.parametrize("option", ["", "pt", "pc", "floor", "sym", "symnarrow"])
def test_levels_are_counted(bits: int, option: str) -> None:
    net = make_big_net()
    for layer, rounded in zip(net.layers, quantize(net, f"w{bits}{option}").layers, strict=True):
        per_channel = Scheme.parse(f"w{bits}{option}").granularity_of(isinstance(layer, Conv2d)).value == "per_channel"
        assert count_levels(layer.weight, per_channel) > 2**bits
        levels = count_levels(rounded.weight, per_channel)
        assert 2 <= levels <= 2**bits - ("narrow" in option)


def test_count_levels_takes_the_worst_channel() -> None:
    weight = np.float32([[1, 1, 1], [1, 2, 3]])
    assert count_levels(weight, per_channel=True) == 3
    assert count_levels(np.float32([[1, 2], [3, 4]]), per_channel=True) == 2
    assert count_levels(np.float32([[1, 2], [3, 4]]), per_channel=False) == 4


@given(NETS, st.integers(2, 32), st.sampled_from(["", "sym", "symnarrow", "floor", "pt", "pc"]))
def test_only_weights_change(net: Net, bits: int, option: str) -> None:
    before = [layer.weight.copy() for layer in net.layers]
    quantized = quantize(net, f"w{bits}{option}")
    for layer, rounded, old in zip(net.layers, quantized.layers, before, strict=True):
        assert rounded.weight.dtype == rounded.bias.dtype == np.float32
        np.testing.assert_array_equal(rounded.bias, layer.bias)
        np.testing.assert_array_equal(layer.weight, old)
        assert (type(rounded), rounded.activation) == (type(layer), layer.activation)
        assert getattr(rounded, "stride", None) == getattr(layer, "stride", None)


@given(NETS)
def test_32_bits_are_float_rounding(net: Net) -> None:
    """At most a step and a half of the range, which is finer than float32 of most weights, and one float32 rounding."""
    for layer, rounded in zip(net.layers, quantize(net, "w32").layers, strict=True):
        step = (max(layer.weight.max(), 0) - min(layer.weight.min(), 0)) * 2.0**-32
        bound = 1.5 * step + np.abs(layer.weight) * 2.0**-23
        assert (np.abs(rounded.weight.astype(np.float64) - layer.weight) <= bound).all()


def test_fewer_bits_hurt_and_two_are_a_negative_control() -> None:
    net = make_net(8, 64, 64, 4, activation=Activation.TANH)
    x = inputs_of(net, 500)
    exact = net.forward(x)
    errors = [float(np.abs(quantize(net, f"w{bits}").forward(x) - exact).mean()) for bits in (32, 16, 8, 6, 4, 2)]
    assert errors == sorted(errors)
    typical = float(np.abs(exact).mean())
    assert errors[2] < 0.02 * typical
    assert errors[-1] > 0.2 * typical


def test_ternary_weights() -> None:
    layer = quantize(make_net(30, 4), "w2symnarrow").layers[0]
    assert set(np.unique(np.sign(layer.weight))) == {-1, 0, 1}
    assert count_levels(layer.weight, per_channel=False) == 3


def test_fp32_is_the_net_itself() -> None:
    net = make_net(3, 4, 2)
    assert quantize(net, "fp32") is net


@given(NETS)
def test_fp16_is_the_ieee_cast_of_weights_and_biases(net: Net) -> None:
    for layer, rounded in zip(net.layers, quantize(net, "fp16").layers, strict=True):
        for array, half in ((layer.weight, rounded.weight), (layer.bias, rounded.bias)):
            assert half.dtype == np.float32
            np.testing.assert_array_equal(half, array.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    "value, half",
    [
        (1 + 2.0**-11, 1.0),  # a tie goes to even
        (1 + 3 * 2.0**-11, 1 + 2.0**-9),
        (65519.0, 65504.0),  # the last that does not overflow
        (2.0**-24, 2.0**-24),  # the smallest subnormal
        (2.0**-25, 0.0),
    ],
)
def test_fp16_by_hand(value: float, half: float) -> None:
    net = Net((1,), (Linear(np.float32([[value]]), np.float32([-value])),))
    layer = quantize(net, "fp16").layers[0]
    assert (layer.weight[0, 0], layer.bias[0]) == (half, -half)


@pytest.mark.parametrize("where", ["weight", "bias"])
def test_fp16_overflow_is_refused(where: str) -> None:
    arrays = {"weight": np.ones((1, 1), np.float32), "bias": np.ones(1, np.float32)}
    arrays[where] = arrays[where] * np.float32(65520)
    net = Net((1,), (Linear(np.ones((1, 1), np.float32), np.zeros(1, np.float32)), Linear(**arrays)))
    with pytest.raises(QuantizationError, match="layer 1 holds values beyond 65504"):
        quantize_net(net, Scheme.parse("fp16"))


@pytest.mark.parametrize("inputs", [None, np.empty((0, 3), np.float32)], ids=["none", "empty"])
def test_activations_need_calibration_inputs(inputs: Floats | None) -> None:
    with pytest.raises(QuantizationError, match="needs calibration inputs"):
        quantize_net(make_net(3, 4, 2), Scheme.parse("int8"), inputs)


def test_uncalibrated_needs_no_data_and_ignores_it() -> None:
    net = make_net(3, 4, 2)
    first, second = (
        quantize_net(net, Scheme.parse("int8uncal"), inputs) for inputs in (None, 100 * inputs_of(net, 50))
    )
    assert isinstance(first, QuantizedNet)
    assert isinstance(second, QuantizedNet)
    assert first.formats == second.formats
    assert 0.01 < float(first.input.scale) < 0.05  # about +-3.5 standard deviations over 255 steps


@pytest.mark.parametrize("option", ["", "ema", "pct99"])
def test_damaged_calibration_inputs_are_refused(option: str) -> None:
    net = make_net(3, 4, 2)
    inputs = inputs_of(net, 10)
    inputs[3, 1] = np.nan
    with pytest.raises(QuantizationError, match="not finite"):
        quantize_net(net, Scheme.parse(f"int8{option}"), inputs)


@pytest.mark.parametrize("option, scale", [("", 10 / 255), ("sym", 8 / 127), ("pow2", 1 / 16), ("sympow2", 1 / 8)])
def test_the_input_format_covers_the_calibrated_range(option: str, scale: float) -> None:
    inputs = np.float32([[-2, 0, 1], [0, 8, 0]])
    net = quantize_net(make_net(3, 4, 2), Scheme.parse(f"int8{option}"), inputs)
    assert isinstance(net, QuantizedNet)
    assert net.input.scale == np.float32(scale)
    restored = net.input.dequantize(net.input.quantize(inputs))
    np.testing.assert_allclose(restored, inputs, atol=scale / 2 * 1.001)


def test_percentiles_clip_outliers_and_averages_smooth_them() -> None:
    net = make_net(3, 4, 2)
    inputs = inputs_of(net, 5000)
    inputs[4000, 0] = 1000
    scales = {}
    for option in ("", "ema", "pct99"):
        quantized = quantize_net(net, Scheme.parse(f"int8{option}"), inputs)
        assert isinstance(quantized, QuantizedNet)
        scales[option] = float(quantized.input.scale)
    assert scales["pct99"] < 0.05 < scales["ema"] < scales[""]


@given(NETS, st.integers(2, 8), st.sampled_from(["", "sym", "wide", "pc", "pt", "pow2", "ema", "pct99"]))
def test_a_quantized_net_holds_what_its_name_says(net: Net, bits: int, option: str) -> None:
    scheme = Scheme.parse(f"int{bits}{option}")
    quantized = quantize_net(net, scheme, inputs_of(net, 100))
    assert isinstance(quantized, QuantizedNet)
    low = -(2 ** (bits - 1)) + scheme.narrow_range
    for layer, source in zip(quantized.layers, net.layers, strict=True):
        assert (layer.weight.dtype, layer.bias.dtype, layer.weight_scale.dtype) == (np.int8, np.int32, np.float32)
        assert layer.weight.min() >= low
        assert layer.weight.max() <= 2 ** (bits - 1) - 1
        assert count_levels(layer.weight.astype(np.float32), per_channel=False) <= 2**bits - scheme.narrow_range
        per_channel = scheme.granularity_of(isinstance(source, Conv2d)).value == "per_channel"
        assert len(layer.weight_scale) == (len(source.weight) if per_channel else 1)
    for form in quantized.formats:
        assert isinstance(form.scale, np.float32)
        assert form.format.bit_width == bits
        assert form.format.minimum <= form.zero_point <= form.format.maximum
        assert not scheme.symmetric or form.zero_point == 0
    if scheme.power_of_two:
        scales = [form.scale for form in quantized.formats] + [
            s for layer in quantized.layers for s in layer.weight_scale
        ]
        assert {float(np.frexp(scale)[0]) for scale in scales} == {0.5}


@given(NETS)
def test_dequantized_weights_are_within_half_a_step(net: Net) -> None:
    quantized = quantize_net(net, Scheme.parse("int8"), inputs_of(net, 50))
    assert isinstance(quantized, QuantizedNet)
    for layer, integers, rounded in zip(net.layers, quantized.layers, quantized.dequantized.layers, strict=True):
        scale = integers.weight_scale.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
        assert (np.abs(rounded.weight - layer.weight) <= scale * 0.5001).all()
