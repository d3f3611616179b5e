"""Integer nets: exact against the fake-quantized forward at power-of-two scales, and against plain Python integers."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import ELEMENTWISE, Activation, is_tabled
from quarl_bench.quantization.affine import IntegerFormat, Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer, has_margin, make_table
from quarl_bench.quantization.products.sums import EXACT_FLOAT32
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support import exact
from tests.support.layers import find_largest_sum, forward_layer
from tests.support.strategies import SEEDS, convolutions, inputs_of, make_net, normal, perceptrons

NETS = perceptrons() | convolutions()
OPTIONS = st.builds("".join, st.tuples(*(st.sampled_from(["", o]) for o in ("sym", "wide", "pc")))) | st.just("pt")
LIMIT = 2**31
TANH = ActivationFormat(IntegerFormat(8), np.float32(1 / 128), 0)


def quantize(net: Net, name: str, spread: float = 1.0) -> QuantizedNet:
    """`net` under an int<n> scheme, calibrated on 64 normal inputs."""
    quantized = quantize_net(net, Scheme.parse(name), inputs_of(net, 64, seed=1, spread=spread))
    assert isinstance(quantized, QuantizedNet)
    return quantized


def wild_inputs(net: Net, seed: int, count: int = 40) -> np.ndarray:
    """Ordinary inputs, and some that saturate."""
    x = inputs_of(net, count, seed)
    x[: count // 4] *= 50
    x[0], x[1], x[2] = np.inf, -1e30, 0
    return x


def largest_of(net: QuantizedNet) -> int:
    """Bound of every partial sum of all layers."""
    return max(find_largest_sum(*pair) for pair in zip(net.layers, net.formats, strict=False))


def sum_by_hand(layer: QuantizedLayer, source: ActivationFormat, q: Integers) -> dict[tuple[int, ...], int]:
    """Accumulators of one sample as Python integers, by output index."""
    x = (q - source.zero_point).tolist()
    weight, bias = layer.weight.tolist(), layer.bias.tolist()
    if layer.kind is Linear:
        flat = np.asarray(x).reshape(-1).tolist()
        rows = enumerate(zip(weight, bias, strict=True))
        return {(o,): sum(a * b for a, b in zip(flat, row, strict=True)) + start for o, (row, start) in rows}
    outputs, channels, height, width = layer.weight.shape
    spots = product(
        range(outputs),
        range((len(x[0]) - height) // layer.stride + 1),
        range((len(x[0][0]) - width) // layer.stride + 1),
    )
    window = list(product(range(channels), range(height), range(width)))
    return {
        (o, i, j): bias[o]
        + sum(weight[o][c][h][w] * x[c][i * layer.stride + h][j * layer.stride + w] for c, h, w in window)
        for o, i, j in spots
    }


def run_by_hand(layer: QuantizedLayer, source: ActivationFormat, q: Integers) -> Integers:
    """One layer of one sample: Python sums, rational requantization, clip, the activation in float64."""
    sums = sum_by_hand(layer, source, q)
    out = np.empty([n + 1 for n in max(sums)], np.int64)
    scales = np.broadcast_to(layer.weight_scale, len(layer.weight)).tolist()
    for index, acc in sums.items():
        rounded = exact.fp32_rne(
            acc, Fraction(float(source.scale)), Fraction(scales[index[0]]), Fraction(float(layer.output.scale))
        )
        low = layer.output.zero_point if layer.activation is Activation.RELU else layer.output.format.minimum
        value = min(max(rounded + layer.output.zero_point, low), layer.output.format.maximum)
        if layer.tabled is not None:
            real = (value - layer.output.zero_point) * float(layer.output.scale)
            y = float(ELEMENTWISE[layer.activation].exact(np.float64(real)))
            steps = round(Fraction(y) / Fraction(float(layer.tabled.scale)))
            value = min(max(steps + layer.tabled.zero_point, layer.tabled.format.minimum), layer.tabled.format.maximum)
        out[index] = value
    return out


@given(NETS, st.integers(2, 8), OPTIONS, SEEDS)
def test_integer_equals_fake_quantized_at_power_of_two_scales(net: Net, bits: int, options: str, seed: int) -> None:
    """Exactly, wherever float32 holds the sums: below 2^24."""
    quantized = quantize(net, str(Scheme.parse(f"int{bits}{options}pow2").name))
    assume(largest_of(quantized) < EXACT_FLOAT32)
    x = wild_inputs(net, seed)
    np.testing.assert_array_equal(IntegerNet.from_quantized(quantized).forward(x), quantized.forward(x))


def without_tanh(layer: QuantizedLayer) -> QuantizedLayer:
    """The layer up to the integers in front of the table."""
    return replace(layer, activation=Activation.NONE, tabled=None) if layer.tabled else layer


@given(NETS, st.integers(2, 8), OPTIONS, SEEDS)
def test_a_layer_given_equal_inputs_is_within_one_step(net: Net, bits: int, options: str, seed: int) -> None:
    """At any scale; behind a tanh one step in front of the table."""
    quantized = quantize(net, f"int{bits}{options}")
    rng = np.random.default_rng(seed)
    for layer, source in zip(quantized.layers, quantized.formats, strict=False):
        bare = without_tanh(layer)
        shape = (layer.weight.shape[1], *([6, 7] if layer.kind is Conv2d else []))
        alone = QuantizedNet(shape, source, (bare,))
        q = rng.integers(source.format.minimum, source.format.maximum + 1, (50, *shape))
        fake, integer = forward_layer(alone, 0, q), IntegerNet.from_quantized(alone).run_layer(0, q)
        assert np.abs(fake - integer).max() <= 1


@given(NETS, st.integers(2, 8), OPTIONS, SEEDS)
def test_a_run_equals_its_layers_one_by_one(net: Net, bits: int, options: str, seed: int) -> None:
    """What is carried by floats from end to end is what is rounded to integers behind every layer; ties included."""
    for pow2 in ("", "pow2"):
        integer = IntegerNet.from_quantized(quantize(net, str(Scheme.parse(f"int{bits}{options}{pow2}").name)))
        q = integer.input.quantize(wild_inputs(net, seed))
        found = integer.run(q)
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, integer.trace(q)[-1])


@pytest.mark.parametrize("activation", Activation, ids=str)
@pytest.mark.parametrize("scheme", ["int8", "int4", "int8pow2"])
def test_differences_of_whole_nets_are_counted(scheme: str, activation: Activation) -> None:
    """Printed with -s or on failure; at power-of-two scales there are none, elsewhere they stay a few steps."""
    net = make_net(8, 64, 64, 4, activation=activation)
    quantized = quantize(net, scheme)
    x = inputs_of(net, 5000)
    steps = (quantized.forward(x) - IntegerNet.from_quantized(quantized).forward(x)) / quantized.formats[-1].scale
    different = np.count_nonzero(np.rint(steps))
    print(f"{scheme} {activation}: {different} of {steps.size} outputs differ, at most {np.abs(steps).max():.0f} steps")  # noqa: T201
    assert different == 0 or "pow2" not in scheme
    assert different < 0.01 * steps.size


@given(NETS, st.integers(2, 8), OPTIONS | st.just("pow2"), SEEDS)
def test_every_layer_equals_plain_python(net: Net, bits: int, options: str, seed: int) -> None:
    quantized = quantize(net, f"int{bits}{options}")
    integer = IntegerNet.from_quantized(quantized)
    q = integer.input.quantize(wild_inputs(net, seed, count=4))
    for index, behind in enumerate(integer.trace(q)):
        expected = run_by_hand(quantized.layers[index], quantized.formats[index], q[3])
        np.testing.assert_array_equal(behind[3], expected)
        q = behind


@given(st.sampled_from(["linear", "conv"]), st.sampled_from([1, 100, 2000]), st.sampled_from([0, 2**20, 2**30]), SEEDS)
def test_accumulators_are_exact(kind: str, inputs: int, bias: int, seed: int) -> None:
    """Read off a layer whose scales are all 1, whose output has 32 bits, and whose rounding is float64's."""
    rng = np.random.default_rng(seed)
    source = ActivationFormat(IntegerFormat(8), np.float32(1), int(rng.integers(-128, 128)))
    shape = (3, inputs) if kind == "linear" else (3, max(inputs // 9, 1), 3, 3)
    weight = rng.integers(-128, 128, shape).astype(np.int8)
    if seed % 2:
        weight = np.sign(rng.standard_normal(shape)).astype(np.int8) * np.int8(127)  # as large as sums can get
    layer = QuantizedLayer(
        Linear if kind == "linear" else Conv2d,
        Activation.NONE,
        1,
        weight,
        np.ones(1, np.float32),
        IntegerFormat(8),
        rng.integers(-bias, bias + 1, 3).astype(np.int32),
        ActivationFormat(IntegerFormat(32), np.float32(1), 0),
    )
    q = rng.integers(-128, 128, (2, *shape[1:2], *((5, 4) if kind == "conv" else ())))
    q[0] = np.where(rng.random(q[0].shape) < 0.5, -128, 127)
    net = IntegerNet(q.shape[1:], source, (layer,), Requantization.HALF_AWAY)
    for sample, found in zip(q, net.run(q), strict=True):
        for index, acc in sum_by_hand(layer, source, sample).items():
            assert found[index] == acc


@pytest.mark.parametrize("bias, said", [(2**30, None), (2**31 - 1, "beyond 32 bits")], ids=["fits", "overflows"])
def test_an_accumulator_beyond_32_bits_is_refused(bias: int, said: str | None) -> None:
    source = ActivationFormat(IntegerFormat(8), np.float32(1), 0)
    one = np.ones(1, np.float32)
    layer = QuantizedLayer(Linear, Activation.NONE, 1, np.int8([[1]]), one, IntegerFormat(8), np.int32([bias]), source)
    net = IntegerNet((1,), source, (layer,))
    if said is None:
        assert net.run(np.int64([[3]])).tolist() == [[127]]
    else:
        with pytest.raises(QuantizationError, match=said):
            net.run(np.int64([[3]]))


@given(NETS, st.integers(2, 8), OPTIONS, st.sampled_from(Requantization))
def test_run_is_the_end_of_the_trace(net: Net, bits: int, options: str, rule: Requantization) -> None:
    integer = IntegerNet.from_quantized(quantize(net, f"int{bits}{options}"), rule)
    x = wild_inputs(net, 0)
    q = integer.input.quantize(x)
    trace = integer.trace(q)
    assert len(trace) == len(net.layers)
    np.testing.assert_array_equal(integer.run(q), trace[-1])
    np.testing.assert_array_equal(integer.forward(x), integer.output.dequantize(trace[-1]))
    for layer, behind in zip(integer.layers, trace, strict=True):
        assert behind.dtype == np.int64
        assert layer.result.format.minimum <= behind.min()
        assert behind.max() <= layer.result.format.maximum
        assert layer.activation is not Activation.RELU or behind.min() >= layer.output.zero_point


@given(NETS, st.integers(2, 8), OPTIONS | st.just("pow2"), SEEDS)
def test_stored_thresholds_equal_float32(net: Net, bits: int, options: str, seed: int) -> None:
    """Through clip, ReLU and tanh."""
    fp32 = IntegerNet.from_quantized(quantize(net, f"int{bits}{options}"))
    stored = fp32.with_requantization(Requantization.THRESHOLDS)
    q = fp32.input.quantize(wild_inputs(net, seed))
    for first, second in zip(fp32.trace(q), stored.trace(q), strict=True):
        np.testing.assert_array_equal(first, second)


def test_rules_give_different_nets_at_power_of_two_scales() -> None:
    fp32 = IntegerNet.from_quantized(quantize(make_net(8, 64, 64, 4), "int8pow2"))
    q = fp32.input.quantize(inputs_of(make_net(8, 4), 2000))
    rules = (Requantization.HALF_AWAY, Requantization.DOUBLE_HALF_UP, Requantization.GEMMLOWP)
    assert all((fp32.run(q) != fp32.with_requantization(rule).run(q)).any() for rule in rules)


@given(NETS, st.integers(2, 8), OPTIONS)
def test_batches_do_not_matter(net: Net, bits: int, options: str) -> None:
    integer = IntegerNet.from_quantized(quantize(net, f"int{bits}{options}"))
    q = integer.input.quantize(wild_inputs(net, 3))
    np.testing.assert_array_equal(integer.run(q), np.concatenate([integer.run(q[i : i + 1]) for i in range(len(q))]))


@pytest.mark.parametrize("zero_point", [-128, 0, 127, -7])
@pytest.mark.parametrize("scale", [2.0**-7, 0.0123, 3.0])
def test_input_quantization_saturates_and_multiplies_by_the_reciprocal(scale: float, zero_point: int) -> None:
    form = ActivationFormat(IntegerFormat(8), np.float32(scale), zero_point)
    ends = np.float32([-np.inf, -1e30, -3e38, 3e38, 1e30, np.inf])
    assert form.quantize(ends).tolist() == [-128, -128, -128, 127, 127, 127]
    reciprocal = exact.to_float(1 / Fraction(float(np.float32(scale))), 24)
    ties = ((np.arange(-300, 300) + 0.5) * scale).astype(np.float32)
    x = np.concatenate([ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf))])
    expected = [
        min(max(round(exact.to_float(Fraction(value) * reciprocal, 24)) + zero_point, -128), 127)
        for value in x.tolist()
    ]
    assert form.quantize(x).tolist() == expected
    assert form.quantize(np.float32([0])) == zero_point
    assert form.dequantize(np.int64([zero_point])) == 0


def test_nan_is_refused() -> None:
    quantized = quantize(make_net(3, 4, 2), "int8")
    x = np.float32([[0, 1, 2], [0, np.nan, 1]])
    with pytest.raises(QuantizationError, match="cannot quantize NaN"):
        IntegerNet.from_quantized(quantized).forward(x)
    with pytest.raises(QuantizationError, match="cannot quantize NaN"):
        quantized.input.quantize(x)


@given(SEEDS, st.integers(2, 8), st.booleans())
def test_unsigned_activations(seed: int, bits: int, power_of_two: bool) -> None:
    """Behind a ReLU the whole unsigned range is positive; the forms agree as the signed ones do."""
    rng = np.random.default_rng(seed)
    base = quantize(make_net(5, 7, 6, 3, seed=seed), f"int{bits}pow2" if power_of_two else f"int{bits}")
    shift = 1 << (bits - 1)

    def unsigned(form: ActivationFormat) -> ActivationFormat:
        return ActivationFormat(IntegerFormat(bits, signed=False), form.scale, form.zero_point + shift)

    layers = tuple(replace(layer, output=unsigned(layer.output)) for layer in base.layers)
    other = QuantizedNet(base.input_shape, unsigned(base.input), layers)
    x = normal(rng, 50, 5, spread=3)
    signed, moved = (IntegerNet.from_quantized(net) for net in (base, other))
    np.testing.assert_array_equal(moved.input.quantize(x), signed.input.quantize(x) + shift)
    np.testing.assert_array_equal(moved.run(moved.input.quantize(x)), signed.run(signed.input.quantize(x)) + shift)
    np.testing.assert_array_equal(moved.forward(x), signed.forward(x))
    thresholds = moved.with_requantization(Requantization.THRESHOLDS)
    np.testing.assert_array_equal(thresholds.forward(x), moved.forward(x))
    if power_of_two:
        np.testing.assert_array_equal(moved.forward(x), other.forward(x))


def tables(source: ActivationFormat, target: ActivationFormat) -> list[list[int]]:
    """What libraries make of one table: float32 or float64, ties to even or away, times the reciprocal or divided."""
    integers = np.arange(source.format.minimum, source.format.maximum + 1)
    x = source.dequantize(integers)
    inverse = np.float32(1) / target.scale
    steps = [np.tanh(x) * inverse, np.tanh(x) / target.scale, np.tanh(x.astype(np.float64)) / float(target.scale)]
    rounded = [rule(s) for s in steps for rule in (np.rint, lambda s: np.sign(s) * np.floor(np.abs(s) + 0.5))]
    low, high = target.format.minimum, target.format.maximum
    return [np.clip(r + target.zero_point, low, high).astype(int).tolist() for r in rounded]


def test_tanh_tables_with_a_margin_are_the_same_in_every_library() -> None:
    """2 million entries; without the margin rule some disagree."""
    rng = np.random.default_rng(0)
    kept = refused = disagree = 0
    for scale in np.exp2(rng.uniform(-10, -4, 8000)).astype(np.float32):
        source = ActivationFormat(IntegerFormat(8), scale, int(rng.integers(-20, 20)))
        if has_margin(Activation.TANH, source, TANH):
            kept += 1
            table = make_table(Activation.TANH, source, TANH).tolist()
            assert all(other == table for other in tables(source, TANH))
        else:
            refused += 1
            first, *others = tables(source, TANH)
            disagree += any(other != first for other in others)
    assert kept > 7500
    assert refused > 5
    print(f"{refused} scales without a margin, of which {disagree} give different tables")  # noqa: T201


def test_margin_is_missed_on_a_tie() -> None:
    """The integer 1 stands for artanh(0.5 / 128), whose tanh is half a step."""
    tie = ActivationFormat(IntegerFormat(8), np.float32(np.arctanh(0.5 / 128)), 0)
    assert not has_margin(Activation.TANH, tie, TANH)
    assert has_margin(Activation.TANH, replace(tie, scale=np.float32(tie.scale * 1.01)), TANH)


@pytest.mark.parametrize("scheme", ["int8sym", "int8sympow2", "int4sym", "int2sym"])
def test_a_scale_without_margin_is_nudged(scheme: str) -> None:
    """The range of one unit decides its scale; that scale would put an entry on a tie."""
    bits = Scheme.parse(scheme).bit_width
    target = ActivationFormat(IntegerFormat(bits), np.float32(2.0 ** (1 - bits)), 0)
    wanted = np.float32(np.arctanh(0.5 * 2.0 ** (1 - bits)))
    assert not has_margin(Activation.TANH, ActivationFormat(IntegerFormat(bits), wanted, 0), target)
    top = np.float32(wanted * (2 ** (bits - 1) - 1))
    net = Net((1,), (Linear(np.float32([[1]]), np.float32([0]), Activation.TANH),))
    quantized = quantize_net(net, Scheme.parse(scheme), np.float32([[top], [-top]]))
    assert isinstance(quantized, QuantizedNet)
    layer = quantized.layers[0]
    assert has_margin(layer.activation, layer.output, layer.result)
    assert layer.output.scale > wanted
    assert layer.output.scale <= wanted * (2 if "pow2" in scheme else 1.01)


@given(perceptrons(), st.integers(2, 8), OPTIONS | st.just("pow2"))
def test_every_table_of_a_net_keeps_the_margin(net: Net, bits: int, options: str) -> None:
    for layer in quantize(net, f"int{bits}{options}").layers:
        assert (layer.tabled is not None) is is_tabled(layer.activation)
        if layer.tabled is not None:
            assert len(layer.table) == layer.output.format.levels
        if layer.activation is Activation.TANH:
            assert layer.tabled is not None
            assert (np.diff(layer.table) >= 0).all()
            assert all(other == layer.table.tolist() for other in tables(layer.output, layer.tabled))


def test_a_relu_has_no_table() -> None:
    with pytest.raises(QuantizationError, match="no table stands behind relu"):
        _ = quantize(make_net(3, 4, 2), "int8").layers[0].table


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_a_small_net_keeps_its_function_only_with_enough_bits(bits: int) -> None:
    net = make_net(8, 64, 64, 4, activation=Activation.TANH)
    x = inputs_of(net, 1000)
    expected = net.forward(x)
    error = np.abs(IntegerNet.from_quantized(quantize(net, f"int{bits}")).forward(x) - expected).mean()
    relative = float(error / np.abs(expected).mean())
    assert {8: relative < 0.05, 4: 0.05 < relative < 0.7, 2: relative > 0.3}[bits], relative
