"""onnxruntime computes the golden model's integers, and none of a policy's layers stays in floats."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.export import export_policy, find_divergence, run_integers
from quarl_bench.backends.onnx import backend
from quarl_bench.backends.onnx.backend import MODEL, ONNX, OnnxRunner, to_unsigned, write_model
from quarl_bench.errors import DeploymentError, MissingExtra
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet, require_integer
from quarl_bench.quantization.activations import Activation, is_tabled
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.images import make_image_policy
from tests.support.sizes import draw_examples
from tests.support.strategies import convolutions, inputs_of, make_net, make_policy, perceptrons

pytestmark = pytest.mark.needs("onnx")
HEAVY = {"QGemm", "QLinearConv"}


def quantize(net: Net, scheme: str, count: int = 60) -> IntegerPolicy:
    image = len(net.input_shape) == 3
    transform = ObservationTransform(net.input_shape, image=image)
    states = (
        np.random.default_rng(0).integers(0, 256, (count, *net.input_shape), np.uint8)
        if image
        else inputs_of(net, count)
    )
    return require_integer(
        PolicyNet(transform, net, ActionHead(HeadKind.ARGMAX)).quantize(Scheme.parse(scheme), states)
    )


def list_operators(policy: IntegerPolicy) -> tuple[str, ...]:
    return OnnxRunner(write_model(to_unsigned(policy))[MODEL]).operators


@given(
    net=st.one_of(perceptrons(), convolutions()),
    scheme=st.sampled_from(["int8", "int8sym", "int8pow2", "int8sympc", "int4", "int2wide"]),
)
@draw_examples(60)
def test_any_net_is_bit_exact(net: Net, scheme: str) -> None:
    policy = quantize(net, scheme).net
    low, high = policy.input.format.minimum, policy.input.format.maximum
    q = np.random.default_rng(0).integers(low, high + 1, (100, *net.input_shape))
    assert (run_integers(policy, q, "onnx") == policy.run(q)).all(), find_divergence(policy, q, "onnx")


def test_a_net_that_ends_in_a_table_is_exported(tmp_path: Path) -> None:
    net = make_net(6, 8, 2)
    ends = Net(net.input_shape, (*net.layers[:-1], replace(net.layers[-1], activation=Activation.TANH)))
    policy = quantize(ends, "int8")
    states = inputs_of(net, 60)
    options = {"scheme": "int8", "source_sha256": "0" * 64, "backend": "onnx"}
    deployed = export_policy(policy, tmp_path / "artefact", states, **options)
    assert np.array_equal(deployed.act(states), policy.act(states))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("scheme", ["int8", "int8sym", "int8pow2", "int8pc", "int4"])
def test_every_layer_is_integer_in_the_graph_that_runs(scheme: str, activation: Activation) -> None:
    operators = list_operators(quantize(make_net(24, 64, 64, 4, activation=activation), scheme))
    assert operators.count("QGemm") == 3
    assert set(operators) <= {"QGemm", "Clip", "Cast", "Gather"}
    assert ("Gather" in operators) == is_tabled(activation)


def test_convolutions_are_integer_in_the_graph_that_runs() -> None:
    operators = list_operators(quantize(make_image_policy().net, "int8"))
    assert [operator for operator in operators if operator in HEAVY] == ["QLinearConv", "QLinearConv", "QGemm"]
    assert "Gemm" not in operators
    assert "DequantizeLinear" not in operators


def test_a_layer_that_stays_float_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # An activation that has no integer form between the sum and its quantization.
    genuine = backend.write_integer_model

    def write(net: IntegerNet) -> bytes:
        import onnx

        model = onnx.load_model_from_string(genuine(net))
        quantize = next(node for node in model.graph.node if node.op_type == "QuantizeLinear")
        relu = onnx.helper.make_node("LeakyRelu", [quantize.input[0]], ["between"], alpha=0.5)
        quantize.input[0] = "between"
        model.graph.node.insert(list(model.graph.node).index(quantize), relu)
        return bytes(model.SerializeToString())

    monkeypatch.setattr(backend, "write_integer_model", write)
    files = write_model(to_unsigned(quantize(make_net(6, 8, 2), "int8")))
    with pytest.raises(DeploymentError, match=r"leaves part of the policy in floats \(LeakyRelu, QuantizeLinear\)"):
        OnnxRunner(files[MODEL])


def test_unsigned_integers_are_the_same_policy() -> None:
    policy = quantize(make_net(6, 16, 3, activation=Activation.TANH), "int8")
    moved = to_unsigned(policy)
    x = inputs_of(make_net(6, 3), 200)
    np.testing.assert_array_equal(moved.net.forward(x), policy.net.forward(x))
    np.testing.assert_array_equal(
        moved.net.run(policy.net.input.quantize(x) + 128), policy.net.run(policy.net.input.quantize(x)) + 128
    )
    again = to_unsigned(moved)
    assert again.net.input == moved.net.input


def test_float_files_are_close() -> None:
    for net in (make_net(24, 64, 64, 4), make_net(5, 7, 2, activation=Activation.TANH), make_image_policy().net):
        x = inputs_of(net, 30)
        policy = PolicyNet(ObservationTransform(net.input_shape, image=x.ndim == 4), net, ActionHead(HeadKind.ARGMAX))
        runner = OnnxRunner(write_model(policy)[MODEL])
        got = runner.run(np.ascontiguousarray(np.moveaxis(x, 1, -1)) if x.ndim == 4 else x)
        expected = net.forward(x)
        np.testing.assert_allclose(got, expected, atol=1e-5 * max(1, np.abs(expected).max()))


def test_a_batch_gives_what_its_rows_give_alone() -> None:
    policy = to_unsigned(quantize(make_net(11, 64, 33, 3, activation=Activation.TANH), "int8"))
    runner = OnnxRunner(write_model(policy)[MODEL])
    x = np.random.default_rng(0).integers(0, 256, (2100, 11)).astype(np.uint8)
    rows = np.concatenate([runner.run(x[i : i + 1]) for i in range(len(x))])
    for size in (1, 2, 7, 1024, 1025, len(x), 0):
        np.testing.assert_array_equal(runner.run(x[:size]), rows[:size])


@pytest.mark.parametrize("model", [b"", b"abc", b"\x08\x0a" * 100])
def test_what_is_no_model_is_refused(model: bytes) -> None:
    with pytest.raises(DeploymentError, match="onnx: onnxruntime cannot run this file") as caught:
        OnnxRunner(model)
    assert "\n" not in str(caught.value)


def test_other_rules_and_missing_packages_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    policy = quantize(make_net(4, 2), "int8")
    other = replace(policy, net=policy.net.with_requantization(Requantization.GEMMLOWP))
    with pytest.raises(DeploymentError, match="requantizes as fp32_rne or thresholds, not as gemmlowp"):
        ONNX.make_files(to_unsigned(other))
    model = write_model(to_unsigned(policy))[MODEL]
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra, match=r"pip install 'quarl_bench\[onnx\]'"):
        OnnxRunner(model)
    monkeypatch.setitem(sys.modules, "onnx", None)
    states = np.zeros((3, 4), np.float32)
    with pytest.raises(MissingExtra, match=r"pip install 'quarl_bench\[onnx\]'"):
        export_policy(make_policy(), tmp_path / "a", states, scheme="fp32", source_sha256="0", backend="onnx")
    assert not (tmp_path / "a").exists()
