"""Wide outputs (`acc`): every backend returns the golden model's 32-bit sums, ties and near ties included."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.export import export_policy, find_divergence, run_integers
from quarl_bench.backends.fpga.rtl.table import ActionTable
from quarl_bench.backends.registry import find_backend
from quarl_bench.errors import DeploymentError, PolicyError, QuantizationError
from quarl_bench.policies.action_table import tabulate_actions
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.policy import IntegerPolicy, Policy, require_integer
from quarl_bench.policies.storage.integers import load_integers, save_integers
from quarl_bench.prove.executors import ProofSubject, open_design
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.parameters import SUM_BITS, ActivationFormat
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.designs import make_bare, simulate
from tests.support.layers import INT8, draw_integers, make_layer
from tests.support.sizes import choose
from tests.support.strategies import convolutions, inputs_of, make_net, make_policy, normal, perceptrons

RTL = "rtl"  # a design in Verilator
NEEDS = {"litert": ("litert",), "c": ("cc",), "onnx": ("onnx",), "dump": (), RTL: ("verilator",)}
STATES = normal(np.random.default_rng(0), 300, 4, spread=2.0)


def over(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "backend", [pytest.param(name, marks=pytest.mark.needs(*NEEDS[name])) for name in names]
    )


every_backend = over(*NEEDS)
SUMS = {"bits": 8, "source": ActivationFormat(INT8, np.float32(0.5), -7)}


def make_sums(weight: np.ndarray, bias: np.ndarray) -> IntegerNet:
    """One layer that returns its sums."""
    net = make_layer(weight, bias, np.float32([0.25]), ActivationFormat(INT8, np.float32(1), 0), **SUMS)
    wide = ActivationFormat(replace(INT8, bit_width=SUM_BITS), np.float32(0.125), 0)
    return replace(net, layers=(replace(net.layers[0], output=wide),))


def quantize(net: Net, scheme: str) -> IntegerNet:
    quantized = quantize_net(net, Scheme.parse(scheme), inputs_of(net, 64, seed=1))
    assert isinstance(quantized, QuantizedNet)
    return IntegerNet.from_quantized(quantized)


def reach(net: IntegerNet) -> int:
    """The largest magnitude of a partial sum of the last layer, once the zero point is in the bias."""
    layer, source = net.layers[-1], (net.input, *(layer.result for layer in net.layers))[-2]
    rows = layer.weight.astype(np.int64)
    bias = layer.bias.astype(np.int64) - source.zero_point * rows.sum(axis=1)
    return int((128 * np.abs(rows).sum(axis=1) + np.abs(bias)).max())


def execute(net: IntegerNet, q: Integers, backend: str) -> Integers:
    return simulate(net, q) if backend == RTL else run_integers(net, q, backend)


def fits(net: Net) -> bool:
    return not net.layers[-1].weight.shape[2:] and net.layers[-1].activation is Activation.NONE


def compare(net: Net, scheme: str, backend: str) -> None:
    integers = quantize(net, scheme)
    q = integers.input.quantize(inputs_of(net, 30))
    q[0], q[1] = integers.input.format.minimum, integers.input.format.maximum
    if backend == "litert" and reach(integers) >= 1 << 24:
        with pytest.raises(DeploymentError, match="float32 sums are exact below"):
            run_integers(integers, q, backend)
        return
    got = execute(integers, q, backend)
    np.testing.assert_array_equal(got, integers.run(q))
    assert backend == RTL or find_divergence(integers, q, backend) is None


@over("litert", "c", "onnx", "dump")
@settings(max_examples=choose(4, 15))
@given(st.one_of(perceptrons(), convolutions()).filter(fits), st.sampled_from(["int8acc", "int8pccleacc"]))
def test_any_net_returns_its_sums(backend: str, net: Net, scheme: str) -> None:
    compare(net, scheme, backend)


@over(RTL)
@settings(max_examples=choose(2, 15))
@given(perceptrons().map(make_bare), st.sampled_from(["int8acc", "int3acc", "int8pccleacc"]))
def test_any_design_returns_its_sums(backend: str, net: Net, scheme: str) -> None:
    """Fewer nets, because each is compiled."""
    compare(net, scheme, backend)


def deploy(backend: str, policy: IntegerPolicy, scheme: str, folder: Path, designs: Path, stack: ExitStack) -> Policy:
    """The policy in a backend, between the host's ends of it."""
    if backend == RTL:
        return open_design(ProofSubject(policy, scheme, "0" * 64, STATES, designs), stack).policy
    export_policy(policy, folder, STATES, scheme=scheme, source_sha256="0" * 64, backend=backend)
    deployed = load_artefact(folder)
    assert verify(deployed) == 261
    return deployed


@every_backend
@pytest.mark.parametrize("kind", HeadKind)
@pytest.mark.parametrize("scheme", choose(["int8pceqcleacc"], ["int8acc", "int8pceqcleacc"]))
def test_an_artefact_acts_as_the_golden_model(
    backend: str, kind: HeadKind, scheme: str, tmp_path: Path, designs: Path
) -> None:
    policy = require_integer(make_policy(kind).quantize(Scheme.parse(scheme), STATES))
    wild = np.random.default_rng(1).choice([np.inf, -np.inf, 1e30, 0.0, 3.0], (200, 4)).astype(np.float32)
    with ExitStack() as stack:
        deployed = deploy(backend, policy, scheme, tmp_path / "a", designs, stack)
        np.testing.assert_array_equal(deployed.outputs(STATES), policy.outputs(STATES))
        np.testing.assert_array_equal(deployed.act(STATES), policy.act(STATES))
        np.testing.assert_array_equal(deployed.act(wild), policy.act(wild))


@every_backend
def test_equal_sums_tie_and_neighbours_do_not(backend: str) -> None:
    """Neighbouring sums below 2^24, whose products with a scale float32 would round to one number."""
    top = (1 << 24) - 200 + np.arange(8)
    net = make_sums(np.zeros((8, 4), np.int64), top)
    got = execute(net, draw_integers(np.random.default_rng(0), 20, net), backend)
    np.testing.assert_array_equal(got, np.broadcast_to(top, (20, 8)))
    values = replace(net.output, scale=np.float32(1.01 / (1 << 24))).dequantize(got[0])
    assert len(np.unique(values)) == 8
    assert len(np.unique(values.astype(np.float32))) < 8  # so that float32 would not do


@every_backend
def test_sums_beyond_24_bits_are_exact_or_refused(backend: str) -> None:
    rng = np.random.default_rng(1)
    net = make_sums(rng.integers(-127, 128, (8, 2048)), rng.integers(-(1 << 30), 1 << 30, 8))
    q = draw_integers(rng, 50, net)
    if backend == "litert":
        with pytest.raises(
            DeploymentError, match=r"^litert: wide outputs can reach \d+, .* below 2\^24; use fewer bits"
        ):
            run_integers(net, q, backend)
        return
    np.testing.assert_array_equal(execute(net, q, backend), net.run(q))


def test_outputs_are_sums_times_one_scale_whatever_the_rule() -> None:
    net = quantize(make_net(4, 16, 3), "int8pcacc")
    q = net.input.quantize(STATES)
    sums = net.run(q)
    assert net.output.zero_point == 0
    assert net.layers[-1].weight_scale.shape == (1,)  # so that integers compare as the outputs do
    assert net.layers[0].weight_scale.shape == (16,)
    np.testing.assert_array_equal(net.forward(STATES), sums * np.float64(net.output.scale))
    np.testing.assert_array_equal(sums.argmax(axis=1), net.forward(STATES).argmax(axis=1))
    np.testing.assert_array_equal(net.with_requantization(Requantization.THRESHOLDS).run(q), sums)


def test_close_values_do_not_tie() -> None:
    net = make_net(4, 32, 2)
    net.layers[-1].weight[1] = net.layers[-1].weight[0] * np.float32(1.004)  # two nearly equal values
    expected = net.forward(STATES).argmax(axis=1)
    outputs = {name: quantize(net, name).forward(STATES) for name in ("int8", "int8acc")}
    tied = {name: float((values[:, 0] == values[:, 1]).mean()) for name, values in outputs.items()}
    agreed = {name: float((values.argmax(axis=1) == expected).mean()) for name, values in outputs.items()}
    assert tied["int8"] > 0.02
    assert tied["int8acc"] == 0
    assert agreed["int8acc"] > agreed["int8"]


def test_a_folder_keeps_them(tmp_path: Path) -> None:
    policy = require_integer(make_policy().quantize(Scheme.parse("int8acc"), STATES))
    saved = save_integers(policy, tmp_path / "p", {})
    loaded = load_integers(tmp_path / "p")
    assert loaded.sha256 == saved.sha256
    np.testing.assert_array_equal(loaded.policy.outputs(STATES), policy.outputs(STATES))
    first, last = policy.net.layers
    wrong = replace(last, output=replace(last.output, scale=np.float32(1)))
    for layers in ((first, wrong), (replace(first, output=last.output, activation=Activation.NONE), last)):
        save_integers(replace(policy, net=replace(policy.net, layers=layers)), tmp_path / "w", {})
        with pytest.raises(PolicyError, match="sums of 32 bits are the last layer's"):
            load_integers(tmp_path / "w")


@pytest.mark.parametrize("activation", [Activation.RELU, Activation.TANH])
def test_what_has_no_wide_outputs_says_so(activation: Activation) -> None:
    net = make_net(4, 8, 2)
    net = Net(net.input_shape, (net.layers[0], replace(net.layers[1], activation=activation)))
    with pytest.raises(
        QuantizationError, match=r"^int8acc: the sums of the last layer are outputs only if .* leave out"
    ):
        quantize(net, "int8acc")


def test_tables_have_no_form_for_them() -> None:
    policy = require_integer(make_policy(HeadKind.TANH).quantize(Scheme.parse("int8acc"), STATES))
    with pytest.raises(DeploymentError, match=r"^fpga: wide outputs \(acc\) have 2\^32 integers, .*leave --tanh out"):
        ActionTable.from_policy(policy)
    with pytest.raises(PolicyError, match="too many integers for a table"):
        tabulate_actions(policy)


def test_the_c_net_has_no_float_and_no_library() -> None:
    policy = require_integer(make_policy(HeadKind.TANH).quantize(Scheme.parse("int8acc"), STATES))
    files = find_backend("c").make_files(policy)
    assert b"tanhf" in files["observe.c"]
    assert not any(word in files["policy.c"] for word in (b"tanhf", b"math.h", b"float x"))
