"""LiteRT computes the golden model's integers, and nothing else passes for it."""

import platform
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.base import to_channel_last
from quarl_bench.backends.export import export_policy, find_divergence
from quarl_bench.backends.litert.flatbuffer import (
    list_tensor_types,
    list_weight_types,
    write_float_net,
    write_integer_net,
)
from quarl_bench.backends.litert.runtime import LARGEST_BATCH, Kernel, LiteRTRunner, load_schema, runtime_version
from quarl_bench.errors import DeploymentError, QuantizationError
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS, TEST_SEEDS
from quarl_bench.policies.policy import IntegerPolicy, require_integer
from quarl_bench.policies.storage.fp32 import StoredPolicy, load_policy
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat, Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Floats, Linear, Net
from quarl_bench.quantization.parameters import ActivationFormat, has_margin
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.forks import run_python
from tests.support.layers import INT8, draw_integers, make_layer, make_tie_net, requantize_half_up
from tests.support.places import POLICIES
from tests.support.sizes import choose, draw_examples, pick_policies
from tests.support.strategies import SEEDS, convolutions, inputs_of, make_net, make_policy, normal, perceptrons
from tests.support.visits import Visit

pytestmark = pytest.mark.needs("litert")

NONE = [pytest.param("", marks=pytest.mark.skip(reason=f"no policies in {POLICIES}"))]
BASELINES = (
    pick_policies(
        [
            folder.parent.name
            for folder in POLICIES.glob("*/policy.safetensors")
            if not any(kind in folder.parent.name for kind in ("layernorm", "recurrent"))
        ],
        per_environment=True,
    )
    or NONE
)  # normalized layers have no integer form, and a state no port
TRAINED = (
    pick_policies([path.parent.name for path in POLICIES.glob("*-qat8-*/integers.safetensors")], per_environment=True)
    or NONE
)
STATES = choose(500, 100_000)  # observations that a policy is compared on
IMAGES = choose(20, 500)  # the same for images
FLOWN = choose(40, 100_000)  # the same for flights, whose steps take milliseconds

# The optimized kernels have another last step on ARM, which nobody has measured.
ON_X86 = pytest.mark.skipif(platform.machine() not in {"x86_64", "AMD64"}, reason="built-in kernels of x86")


@cache
def open_baseline(name: str) -> StoredPolicy:
    return load_policy(POLICIES / name)


def count_real(name: str) -> int:
    if open_baseline(name).policy.transform.image:
        return IMAGES
    return FLOWN if open_baseline(name).metadata["environment"].startswith("PyFlyt") else STATES


def show(text: str) -> None:
    print(text)  # noqa: T201  (seen with -rP)


def quantize_baseline(name: str, scheme: str, visit: Visit) -> IntegerPolicy:
    calibration = visit(name, min(2000, count_real(name)), CALIBRATION_SEEDS)
    return require_integer(open_baseline(name).policy.quantize(Scheme.parse(scheme), calibration))


def to_integer(net: Net, scheme: str, inputs: Floats) -> IntegerNet:
    quantized = quantize_net(net, Scheme.parse(scheme), inputs)
    assert isinstance(quantized, QuantizedNet)
    return IntegerNet.from_quantized(quantized)


def run(net: IntegerNet, q: Integers, kernel: Kernel = Kernel.XNNPACK) -> Integers:
    return LiteRTRunner(write_integer_net(net), kernel).run(to_channel_last(q.astype(np.int8))).astype(np.int64)


# --- committed policies, on the states they visit -------------------------------------------------------------------


@pytest.mark.parametrize("name", BASELINES)
def test_committed_policies_are_bit_exact(name: str, visit: Visit) -> None:
    check_committed(name, "int8", visit)


@pytest.mark.parametrize("name", choose(BASELINES[::4], BASELINES))
def test_they_are_so_with_scales_of_powers_of_two(name: str, visit: Visit) -> None:
    check_committed(name, "int8pow2", visit)


def check_committed(name: str, scheme: str, visit: Visit) -> None:
    """No output differs, of states that are visited or of any."""
    policy = quantize_baseline(name, scheme, visit)
    count = count_real(name)
    real = policy.net.input.quantize(policy.transform.apply(visit(name, count, TEST_SEEDS)))
    anywhere = draw_integers(np.random.default_rng(0), count, policy.net)
    assert len(real) == count
    for q in (real, anywhere):
        expected = policy.net.run(q)
        mismatches = int((run(policy.net, q) != expected).sum())
        show(f"{name} {scheme}: {mismatches} of {expected.size} outputs differ")
        assert mismatches == 0


@pytest.mark.parametrize("name", TRAINED)
def test_policies_trained_with_their_quantizer_are_bit_exact(name: str, visit: Visit) -> None:
    stored = load_integers(POLICIES / name)
    observations = visit(name, STATES, TEST_SEEDS)
    q = stored.policy.net.input.quantize(stored.policy.transform.apply(observations))
    np.testing.assert_array_equal(run(stored.policy.net, q), stored.policy.net.run(q))


@pytest.mark.parametrize("name", BASELINES)
def test_float_files_agree_within_their_tolerance(name: str, visit: Visit) -> None:
    policy, observations = open_baseline(name).policy, visit(name, count_real(name), TEST_SEEDS)
    x = policy.transform.apply(observations)
    got = LiteRTRunner(write_float_net(policy.net)).run(np.moveaxis(x, 1, -1) if x.ndim == 4 else x)
    expected = policy.net.forward(x)
    difference = np.abs(got - expected).max()
    actions = int((policy.head.act(got) != policy.head.act(expected)).sum())
    show(f"{name} fp32: outputs differ by at most {difference:.1e}, {actions} of {len(x)} actions")
    # A small output of a value net is the difference of large sums: they round by their own size.
    assert difference <= 1e-5 * max(1.0, float(np.abs(expected).max()))
    if policy.head.discrete:
        # A sum's order may decide between two actions of the same value, and between no others.
        gap = np.sort(expected, axis=1)
        assert actions <= int((gap[:, -1] - gap[:, -2] <= 2 * difference).sum())


@pytest.mark.parametrize("name", BASELINES)
def test_observations_beyond_every_range_saturate(name: str, tmp_path: Path, visit: Visit) -> None:
    if open_baseline(name).policy.transform.image:
        pytest.skip("pixels have no values beyond their range")
    policy = quantize_baseline(name, "int8", visit)
    golden = visit(name, min(2000, count_real(name)), CALIBRATION_SEEDS)
    deployed = export_policy(policy, tmp_path / "a", golden, scheme="int8", source_sha256="0")
    rng = np.random.default_rng(1)
    wild = rng.choice([np.inf, -np.inf, 1e30, -1e30, 0.0, 1e-30, 3.0], (2000, *policy.transform.shape))
    for observations in (wild, wild.astype(np.float32)):
        np.testing.assert_array_equal(deployed.outputs(observations), policy.outputs(observations))
        np.testing.assert_array_equal(deployed.act(observations), policy.act(observations))
    with pytest.raises(QuantizationError, match="NaN"):
        deployed.act(np.full_like(wild, np.nan))


# --- any net ---------------------------------------------------------------------------------------------------------


@given(net=st.one_of(perceptrons(), convolutions()), scheme=st.sampled_from(["int8", "int8pow2", "int8sympc"]))
@draw_examples(60)
def test_any_net_is_bit_exact(net: Net, scheme: str) -> None:
    inputs = inputs_of(net, 50)
    integer = to_integer(net, scheme, inputs)
    q = np.concatenate([integer.input.quantize(inputs), draw_integers(np.random.default_rng(0), 50, integer)])
    np.testing.assert_array_equal(run(integer, q), integer.run(q))
    assert find_divergence(integer, q) is None


@given(net=st.one_of(perceptrons(), convolutions()))
@draw_examples(30)
def test_any_float_net_is_close(net: Net) -> None:
    x = inputs_of(net, 20)
    got = LiteRTRunner(write_float_net(net)).run(np.moveaxis(x, 1, -1) if x.ndim == 4 else x)
    expected = net.forward(x)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("scheme", ["int8", "int8pow2"])
def test_nature_cnn_is_bit_exact(scheme: str) -> None:
    rng = np.random.default_rng(0)

    def convolve(inputs: int, outputs: int, kernel: int, stride: int) -> Conv2d:
        weight = normal(rng, outputs, inputs, kernel, kernel, spread=(2 / (inputs * kernel**2)) ** 0.5)
        return Conv2d(weight, normal(rng, outputs, spread=0.1), stride, Activation.RELU)

    dense = [
        Linear(normal(rng, n, m, spread=(2 / m) ** 0.5), normal(rng, n, spread=0.1), activation)
        for m, n, activation in ((3136, 512, Activation.RELU), (512, 6, Activation.NONE))
    ]
    net = Net((4, 84, 84), (convolve(4, 32, 8, 4), convolve(32, 64, 4, 2), convolve(64, 64, 3, 1), *dense))
    images = rng.integers(0, 256, (40, 4, 84, 84)).astype(np.float32) / 255
    integer = to_integer(net, scheme, images)
    q = integer.input.quantize(images)
    np.testing.assert_array_equal(run(integer, q), integer.run(q))
    assert np.unique(integer.run(q)).size > 30  # and it is not one constant


@pytest.mark.parametrize("integer", [True, False])
def test_a_batch_gives_what_its_rows_give_alone(integer: bool) -> None:
    net = make_net(11, 64, 33, 3, activation=Activation.TANH)
    x = inputs_of(net, 2 * LARGEST_BATCH + 3)
    model = write_float_net(net)
    if integer:
        quantized = to_integer(net, "int8", x)
        x, model = quantized.input.quantize(x).astype(np.int8), write_integer_net(quantized)
    alone = LiteRTRunner(model)
    rows = np.concatenate([alone.run(x[i : i + 1]) for i in range(len(x))])
    runner = LiteRTRunner(model)
    for size in (1, 2, 3, 7, 64, 100, LARGEST_BATCH, LARGEST_BATCH + 1, len(x), 5, 0):
        np.testing.assert_array_equal(runner.run(x[:size]), rows[:size])


# --- requantization, where its rules part ---------------------------------------------------------------------------


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("exact", [False, True])
def test_ties_round_as_fp32_rne_and_as_no_other_rule(exact: bool, per_channel: bool, relu: bool) -> None:
    rng = np.random.default_rng(7)
    wrong = dict.fromkeys((*Requantization, "half_up"), 0)
    total = 0
    for _ in range(12):
        net = make_tie_net(rng, exact=exact, per_channel=per_channel, relu=relu, outputs=4096)
        q = draw_integers(rng, 1, net)
        got = run(net, q)
        for rule in Requantization:
            if rule is not Requantization.THRESHOLDS:
                wrong[rule] += int((got != net.with_requantization(rule).run(q)).sum())
        wrong["half_up"] += int((got != requantize_half_up(net)).sum())
        total += got.size
    show(f"of {total} outputs: {wrong}")
    assert wrong.pop(Requantization.FP32_RNE) == 0
    wrong.pop(Requantization.THRESHOLDS)
    assert min(wrong.values()) > total / 100  # so that a kernel of another rule cannot pass


@ON_X86
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(
    "kernel, rule",
    [(Kernel.REFERENCE, Requantization.HALF_AWAY), (Kernel.BUILTIN, Requantization.DOUBLE_HALF_UP)],
)
def test_other_kernels_follow_their_own_rules(kernel: Kernel, rule: Requantization, exact: bool, relu: bool) -> None:
    rng = np.random.default_rng(8)
    for per_channel in (False, True, False, True):
        net = make_tie_net(rng, exact=exact, per_channel=per_channel, relu=relu, outputs=4096)
        q = draw_integers(rng, 2, net)
        np.testing.assert_array_equal(run(net, q, kernel), net.with_requantization(rule).run(q))


@ON_X86
@pytest.mark.parametrize("kernel", [Kernel.REFERENCE, Kernel.BUILTIN])
def test_other_kernels_convolve_by_gemmlowp(kernel: Kernel) -> None:
    rng = np.random.default_rng(9)
    net = Net((3, 9, 9), (Conv2d(normal(rng, 16, 3, 3, 3), normal(rng, 16), 2, Activation.RELU),))
    integer = to_integer(net, "int8pow2", inputs_of(net, 200)).with_requantization(Requantization.GEMMLOWP)
    q = draw_integers(rng, 200, integer)
    np.testing.assert_array_equal(np.moveaxis(run(integer, q, kernel), -1, 1), integer.run(q))


# --- tanh ------------------------------------------------------------------------------------------------------------


def make_tanh_net(scale: np.float32, zero_point: int, target: ActivationFormat) -> IntegerNet:
    """A layer that passes its integers on, and a Tanh."""
    source = ActivationFormat(INT8, scale, zero_point)
    return make_layer(
        np.ones((1, 1)), np.zeros(1), np.float32([1]), source, activation=Activation.TANH, source=source, tabled=target
    )


TANH_TARGETS = [ActivationFormat(INT8, np.float32(s), z) for s, z in ((1 / 128, 0), (1 / 127, 0), (1 / 64, 5))]


@pytest.mark.parametrize("kernel", [Kernel.XNNPACK, pytest.param(Kernel.BUILTIN, marks=ON_X86), Kernel.REFERENCE])
def test_tanh_equals_its_table(kernel: Kernel) -> None:
    rng = np.random.default_rng(11)
    scales = np.concatenate([np.exp2(np.arange(-10.0, 1.0)), np.exp(rng.uniform(np.log(1e-3), 0.0, 70))])
    everything = np.arange(-128, 128).reshape(-1, 1)
    left_out = 0
    for scale in scales.astype(np.float32):
        for target in TANH_TARGETS:
            net = make_tanh_net(scale, int(rng.integers(-128, 128)), target)
            if not has_margin(Activation.TANH, net.layers[0].output, target):
                left_out += 1
                continue
            table = net.layers[0].table.reshape(-1, 1)
            np.testing.assert_array_equal(net.run(everything), table)
            np.testing.assert_array_equal(run(net, everything, kernel), table)
    show(f"{left_out} of {len(scales) * len(TANH_TARGETS)} scales left out by the margin rule")
    assert left_out <= 0.05 * len(scales) * len(TANH_TARGETS)


def test_quantization_keeps_the_margin() -> None:
    for seed in range(20):
        net = make_net(5, 16, 16, 2, activation=Activation.TANH, seed=seed, spread=2.0)
        for scheme in ("int8", "int8pow2"):
            for layer in to_integer(net, scheme, inputs_of(net, 100)).layers[:-1]:
                assert layer.tabled is not None
                assert has_margin(Activation.TANH, layer.output, layer.tabled)


# --- what is in the file ---------------------------------------------------------------------------------------------


def test_the_file_holds_integers_only() -> None:
    net = make_net(24, 64, 64, 4, activation=Activation.TANH)
    types = list_tensor_types(write_integer_net(to_integer(net, "int8", inputs_of(net, 100))))
    assert {kind for name, kind in types if name.endswith(".bias")} == {"INT32"}
    assert {kind for name, kind in types if not name.endswith(".bias")} == {"INT8"}
    assert {kind for _, kind in list_tensor_types(write_float_net(net))} == {"FLOAT32"}


def test_half_precision_is_stored_in_half_the_bytes() -> None:
    net = make_net(64, 256, 256, 4)
    half = quantize_net(net, Scheme.parse("fp16"))
    assert isinstance(half, Net)
    model, single = write_float_net(half), write_float_net(net)
    assert list_weight_types(model) == ("FLOAT16",) * 3
    assert list_weight_types(single) == ("FLOAT32",) * 3
    assert len(model) < 0.52 * len(single)
    x = inputs_of(net, 100)
    for kernel in Kernel:  # the delegate takes the whole of it, or the runner refuses
        got, expected = LiteRTRunner(model, kernel).run(x), half.forward(x)
        np.testing.assert_allclose(got, expected, atol=1e-5 * max(1, np.abs(expected).max()))


def test_the_file_holds_our_scales() -> None:
    net = make_net(24, 64, 4)
    for scheme in ("int8", "int8pc"):
        integer = to_integer(net, scheme, inputs_of(net, 100))
        graph = load_schema().ModelT.InitFromPackedBuf(write_integer_net(integer)).subgraphs[0]
        tensors = {tensor.name.decode(): tensor.quantization for tensor in graph.tensors}
        source = integer.input
        for index, layer in enumerate(integer.layers):
            scale = np.broadcast_to(layer.weight_scale, layer.bias.shape)
            np.testing.assert_array_equal(tensors[f"layers.{index}.weight"].scale, scale)
            np.testing.assert_array_equal(tensors[f"layers.{index}.bias"].scale, source.scale * scale)
            np.testing.assert_array_equal(tensors[f"layers.{index}.output"].scale, [layer.output.scale])
            np.testing.assert_array_equal(tensors[f"layers.{index}.output"].zeroPoint, [layer.output.zero_point])
            source = layer.result


@given(seed=SEEDS, bits=st.sampled_from([8, 7, 5, 4, 3, 2]), inputs=st.integers(1, 40), outputs=st.integers(1, 20))
def test_narrow_weights_are_bit_exact(seed: int, bits: int, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(seed)
    weights = IntegerFormat(bits)
    net = make_layer(
        rng.integers(weights.minimum, weights.maximum + 1, (outputs, inputs)),
        rng.integers(-1000, 1000, outputs),
        rng.uniform(0.01, 0.02, outputs),
        ActivationFormat(INT8, np.float32(0.01 * inputs**0.5 * 2.0 ** (bits - 3)), 3),
        bits=bits,
    )
    q = draw_integers(rng, 50, net)
    np.testing.assert_array_equal(run(net, q), net.run(q))
    # Rows that do not fill whole bytes cannot be packed, and say so in the file.
    width = min(b for b in (2, 4, 8) if b >= bits and inputs * b % 8 == 0)
    assert list_weight_types(write_integer_net(net)) == (f"INT{width}",)


def test_narrow_weights_shrink_the_file() -> None:
    rng = np.random.default_rng(12)
    float_net = make_net(256, 256)
    sizes = [len(write_float_net(float_net))]
    for bits in (8, 4, 2):
        weight = rng.integers(-(1 << bits - 1), 1 << bits - 1, (256, 256))
        output = ActivationFormat(INT8, np.float32(1.0), 0)
        sizes.append(len(write_integer_net(make_layer(weight, np.zeros(256), np.float32([0.01]), output, bits=bits))))
    show(f"bytes of fp32, int8, int4, int2: {sizes}")
    weights = [256 * 256 * bits // 8 for bits in (32, 8, 4, 2)]
    overheads = [size - weight for size, weight in zip(sizes, weights, strict=True)]
    assert all(overhead < 8000 for overhead in overheads)  # biases, scales, names


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [2, 4, 7])
def test_other_activation_widths_are_refused(bits: int) -> None:
    net = make_net(4, 8, 2)
    with pytest.raises(DeploymentError, match=f"8-bit signed activations, not {bits}-bit"):
        write_integer_net(to_integer(net, f"int{bits}", inputs_of(net, 50)))


def test_unsigned_and_narrow_activations_are_refused() -> None:
    for refused, words in (
        (IntegerFormat(8, signed=False), "unsigned"),
        (IntegerFormat(8, narrow_range=True), "narrow"),
    ):
        output = ActivationFormat(refused, np.float32(0.1), 0)
        with pytest.raises(DeploymentError, match=words):
            write_integer_net(make_layer(np.ones((2, 4)), np.zeros(2), np.float32([0.1]), output))


def test_scales_that_xnnpack_cannot_hold_are_refused() -> None:
    net = make_layer(np.ones((2, 4)), np.zeros(2), np.float32([1e6]), ActivationFormat(INT8, np.float32(0.01), 0))
    with pytest.raises(DeploymentError, match="requantization scale"):
        write_integer_net(net)


def test_a_silent_fallback_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Packed weights whose rows do not fill bytes: the delegate leaves them out without a word.
    monkeypatch.setattr(
        "quarl_bench.backends.litert.operands._storage_width", lambda layer: layer.weight_format.bit_width
    )
    first = make_layer(
        np.ones((4, 3)), np.zeros(4), np.float32([0.1]), ActivationFormat(INT8, np.float32(0.1), 0), bits=4
    )
    second = make_layer(np.ones((2, 4)), np.zeros(2), np.float32([0.1]), ActivationFormat(INT8, np.float32(0.1), 0))
    chains = (first.layers, first.layers + second.layers)
    for layers in chains:
        model = write_integer_net(IntegerNet((3,), first.input, layers))
        with pytest.raises(DeploymentError, match="XNNPACK leaves out part of the graph"):
            LiteRTRunner(model)
        assert LiteRTRunner(model, Kernel.REFERENCE).run(np.zeros((1, 3), np.int8)).shape == (1, len(layers[-1].bias))


@pytest.mark.parametrize("model", [b"", b"abc", b"TFL3" * 100, b"\0" * 1000])
def test_what_is_no_model_is_refused(model: bytes) -> None:
    with pytest.raises(DeploymentError, match="cannot run this file") as caught:
        LiteRTRunner(model)
    assert "\n" not in str(caught.value)


def test_a_damaged_name_is_refused_in_one_line() -> None:
    model = write_float_net(make_net(4, 2))
    with pytest.raises(DeploymentError, match="cannot run this file"):
        LiteRTRunner(model.replace(b"layers.0.output", b"layers.0.\xff\xfftput"))


def test_wrong_inputs_and_kernels_are_refused() -> None:
    runner = LiteRTRunner(write_float_net(make_net(4, 2)))
    for x in (np.zeros((1, 5), np.float32), np.zeros((1, 4)), np.zeros(4, np.float32)):
        with pytest.raises(DeploymentError, match=r"takes \(n, 4\) float32"):
            runner.run(x)
    with pytest.raises(DeploymentError, match="unknown kernel 'fast'; known are xnnpack, builtin, reference"):
        LiteRTRunner(write_float_net(make_net(4, 2)), "fast")


def test_a_missing_runtime_names_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in ("ai_edge_litert", "ai_edge_litert.interpreter"):
        monkeypatch.setitem(sys.modules, module, None)
    observations = np.zeros((3, 4), np.float32)
    with pytest.raises(DeploymentError, match=r"pip install 'quarl_bench\[litert\]'"):
        export_policy(make_policy(), tmp_path / "a", observations, scheme="fp32", source_sha256="0")
    with pytest.raises(DeploymentError, match=r"pip install 'quarl_bench\[litert\]'"):
        LiteRTRunner(b"model")


def test_the_runtime_is_silent(tmp_path: Path) -> None:
    # In a process of its own: the runtime greets once per process.
    (tmp_path / "model.tflite").write_bytes(write_float_net(make_net(4, 2)))
    program = (
        "import pathlib, sys; from quarl_bench.backends.litert.runtime import LiteRTRunner, runtime_version;"
        "LiteRTRunner(pathlib.Path(sys.argv[1]).read_bytes()); print(runtime_version()); print('last', file=sys.stderr)"
    )
    child = run_python("-c", program, tmp_path / "model.tflite", check=True)
    assert (child.stdout, child.stderr) == (runtime_version() + "\n", "last\n")


def test_a_divergence_is_named_by_layer_and_element() -> None:
    net = make_net(6, 12, 12, 3, activation=Activation.TANH)
    integer = to_integer(net, "int8pow2", inputs_of(net, 200))
    q = draw_integers(np.random.default_rng(0), 500, integer)
    where = find_divergence(integer, q, kernel=Kernel.REFERENCE)
    assert where is not None
    assert where.startswith("layer 0, element (")
    layer = integer.layers[0]
    first = IntegerNet(integer.input_shape, integer.input, integer.layers[:1])
    assert layer.tabled is not None
    differs = np.argwhere(run(first, q, Kernel.REFERENCE) != first.run(q))[0]
    assert f"element ({differs[1]},) of pair {differs[0]}" in where
