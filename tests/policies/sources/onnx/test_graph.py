"""ONNX files as policies: what is read equals what onnxruntime computes, and what cannot be read is named."""

import contextlib
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.onnx.qdq import write_float_model
from quarl_bench.errors import PolicyError
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.onnx.chain import Chain
from quarl_bench.policies.sources.onnx.ends import adopt_chain
from quarl_bench.policies.sources.onnx.file import read_graph
from quarl_bench.policies.sources.onnx.graph import read_chain
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.system.imports import import_attribute
from tests.support.places import ROOT
from tests.support.sizes import draw_examples
from tests.support.strategies import make_net, normal

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper = onnx.helper
pytestmark = pytest.mark.needs("onnx")
RNG = np.random.default_rng(0)
X = normal(RNG, 10_000, 6, spread=2.0)
BOX, UNIT = spaces.Box(-np.inf, np.inf, (6,)), spaces.Box(-1, 1, (3,))
ROBOT = ROOT.parent / "shared" / "robots" / "go1"
robot = pytest.mark.skipif(not ROBOT.exists(), reason=f"the Go1's files are not ours, and not in {ROBOT}")
WEIGHTS = {
    "w0": normal(RNG, 6, 16, spread=0.5), "b0": normal(RNG, 16),
    "w1": normal(RNG, 16, 3, spread=0.3), "b1": normal(RNG, 3),
    "w2": normal(RNG, 16, 6, spread=0.3), "b2": normal(RNG, 6),
    "mean": normal(RNG, 6), "sd": np.abs(normal(RNG, 6)) + 0.2,
    "half": np.float32(0.5), "one": np.float32(1), "root": np.float32(np.sqrt(2)), "five": np.float32(5),
    "minus": np.float32(-5), "third": np.float32(3), "c": np.float32(0.044715), "r": np.float32(np.sqrt(2 / np.pi)),
    "starts": np.array([0]), "ends": np.array([3]), "axes": np.array([1]), "sizes": np.array([3, 3]),
    "zero": np.float32(0), "scale": np.abs(normal(RNG, 16)) + 0.1, "variance": np.abs(normal(RNG, 16)) + 0.1,
}  # fmt: skip
Step = tuple[str, str, str] | tuple[str, str, str, dict[str, Any]]


def make_model(steps: list[Step], opset: int = 13, output: str = "y", outputs: int = 3, **changed: Any) -> bytes:
    """Nodes as (operator, inputs, outputs), names separated by spaces; the input is x, the last output y."""
    nodes = [
        helper.make_node(kind, inputs.split(), given.split(), name=given.split()[0], **(rest[0] if rest else {}))
        for kind, inputs, given, *rest in steps
    ]
    used = {name for node in nodes for name in node.input}
    constants = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in (WEIGHTS | changed).items() if n in used]
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", width])
        for name, width in (("x", 6), (output, outputs))
    ]
    graph = helper.make_graph(nodes, "policy", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return bytes(model.SerializeToString())


def read(data: bytes, output: str | None = None) -> Chain:
    return read_chain(read_graph(data, "policy.onnx", output))


def compare(data: bytes, actions: spaces.Box = UNIT, **options: Any) -> PolicyNet:
    """Read a policy, and hold its actions against onnxruntime's, clipped as an environment of these actions does."""
    policy = adopt_chain(read(data), BOX, actions, None, "policy.onnx", **options)
    expected = runtime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    expected = np.clip(expected[:, : policy.net.outputs], actions.low, actions.high)
    np.testing.assert_allclose(policy.act(X), expected, rtol=1e-5, atol=1e-5)
    return policy


GEMM: Step = ("Gemm", "x w0 b0", "h")
END: Step = ("Gemm", "a w1 b1", "y")
FUNCTIONS: dict[str, tuple[Activation, list[Step]]] = {
    "silu": (Activation.SILU, [("Sigmoid", "h", "s"), ("Mul", "s h", "a")]),
    "hardswish": (Activation.HARDSWISH, [("HardSigmoid", "h", "s", {"alpha": 1 / 6}), ("Mul", "h s", "a")]),
    "gelu": (
        Activation.GELU,
        [("Div", "h root", "d"), ("Erf", "d", "e"), ("Add", "e one", "f"), ("Mul", "h f", "g"), ("Mul", "g half", "a")],
    ),
    "gelu_tanh": (
        Activation.GELU_TANH,
        [
            ("Pow", "h third", "p"), ("Mul", "p c", "q"), ("Add", "h q", "s"), ("Mul", "s r", "t"), ("Tanh", "t", "u"),
            ("Add", "u one", "v"), ("Mul", "h half", "w"), ("Mul", "w v", "a"),
        ],
    ),
    "relu": (Activation.RELU, [("Max", "h zero", "a")]),
    "softplus": (Activation.SOFTPLUS, [("Exp", "h", "e"), ("Add", "e one", "f"), ("Log", "f", "a")]),
    "elu": (Activation.ELU, [("Elu", "h", "a")]),
    "leaky": (Activation.LEAKY_RELU, [("LeakyRelu", "h", "a")]),
    "selu": (Activation.SELU, [("Selu", "h", "a")]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_found_however_they_are_composed(name: str) -> None:
    activation, nodes = FUNCTIONS[name]
    policy = compare(make_model([GEMM, *nodes, END]), spaces.Box(-50, 50, (3,)))
    assert [layer.activation for layer in policy.net.layers] == [activation, Activation.NONE]


@pytest.mark.parametrize("activation", Activation)
def test_files_of_our_own_come_back(activation: Activation) -> None:
    net = make_net(6, 16, 3, activation=activation)
    chain = read(write_float_model(net))
    assert [layer.activation for layer in chain.layers] == [activation, Activation.NONE]
    for layer, found in zip(net.layers, chain.layers, strict=True):
        np.testing.assert_array_equal(found.weight, layer.weight)
        np.testing.assert_array_equal(found.bias, layer.bias)


@pytest.mark.parametrize("opset", [9, 10, 11, 13, 17, 18, 21])
def test_every_opset(opset: int) -> None:
    """Split, Clip and Slice changed their form."""
    split: Step = ("Split", "z sizes", "m s", {"axis": -1}) if opset >= 13 else ("Split", "z", "m s", {"axis": -1})
    policy = compare(
        make_model(
            [GEMM, ("Elu", "h", "a"), ("Gemm", "a w2 b2", "z"), split, ("Tanh", "m", "y")], opset=opset
        )
    )  # fmt: skip
    assert policy.head.kind is HeadKind.TANH
    assert policy.net.outputs == 3
    part: Step = ("Slice", "z starts ends axes", "y") if opset >= 10 else (
        "Slice", "z", "y", {"starts": [0], "ends": [3], "axes": [1]})  # fmt: skip
    compare(make_model([GEMM, ("Relu", "h", "a"), ("Gemm", "a w2 b2", "z"), part], opset=opset))
    clip: Step = ("Clip", "z minus five", "y") if opset >= 11 else ("Clip", "z", "y", {"min": -5.0, "max": 5.0})
    policy = compare(make_model([GEMM, ("Relu", "h", "a"), ("Gemm", "a w1 b1", "z"), clip], opset=opset),
                     spaces.Box(-9, 9, (3,)))  # fmt: skip
    assert policy.head.high is not None
    assert policy.head.high.max() == 5


FRONTS: dict[str, list[Step]] = {
    "mean and SD": [("Sub", "x mean", "k"), ("Div", "k sd", "n")],
    "clipped": [("Sub", "x mean", "k"), ("Div", "k sd", "m"), ("Clip", "m minus five", "n")],
    "factor": [("Mul", "x half", "n")],
    "turned": [("Sub", "mean x", "n")],
    "scaled behind the clip": [("Clip", "x minus five", "m"), ("Mul", "m sd", "n")],
}


@pytest.mark.parametrize("name", FRONTS)
def test_what_stands_in_front(name: str) -> None:
    front: list[Step] = FRONTS[name]
    nodes: list[Step] = [("MatMul", "n w0", "g"), ("Add", "g b0", "h"), ("Tanh", "h", "a"), END]
    policy = compare(make_model([*front, *nodes]), spaces.Box(-50, 50, (3,)))
    assert (policy.transform.normalization is None) is (name == "turned")  # a negative factor is no deviation


def test_batch_normalization_is_folded() -> None:
    nodes: list[Step] = [GEMM, ("BatchNormalization", "h scale b0 b0 variance", "k"), ("Relu", "k", "a"), END]
    assert len(compare(make_model(nodes), spaces.Box(-50, 50, (3,))).net.layers) == 2


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_floats(kind: type) -> None:
    weights = {name: WEIGHTS[name].astype(kind) for name in ("w0", "b0", "w1", "b1")}
    chain = read(make_model([GEMM, ("Elu", "h", "a"), END], **weights))
    assert all(layer.weight.dtype == np.float32 for layer in chain.layers)
    np.testing.assert_array_equal(chain.layers[0].weight, weights["w0"].T.astype(np.float32))


def test_an_image_is_divided_by_255_outside() -> None:
    image = spaces.Box(0, 255, (3, 12, 12), np.uint8)
    net = Net((3, 12, 12), (Conv2d(normal(RNG, 4, 3, 4, 4, spread=0.1), normal(RNG, 4), 4, Activation.ELU),
                            Linear(normal(RNG, 2, 36), normal(RNG, 2))))  # fmt: skip
    graph = onnx.load_model_from_string(write_float_model(net))
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(255), "pixels"))
    graph.graph.node.insert(0, helper.make_node("Div", ["input", "pixels"], ["divided"], name="divided"))
    graph.graph.node[1].input[0] = "divided"
    policy = adopt_chain(read(graph.SerializeToString()), image, spaces.Discrete(2), None, "policy.onnx")
    x = RNG.integers(0, 256, (50, 3, 12, 12), dtype=np.uint8)
    np.testing.assert_allclose(policy.outputs(x), net.forward(x / np.float32(255)), rtol=1e-4, atol=1e-4)


def make_turning(shape: tuple[int, ...], *, turns: bool) -> bytes:
    """A layer on all pixels of images of a shape, behind a Transpose or not."""
    steps: list[Step] = [("Transpose", "x", "t", {"perm": [0, 3, 1, 2]})] if turns else []
    size = int(np.prod(shape))
    steps += [("Flatten", "t" if turns else "x", "f"), ("Gemm", "f w b1", "y")]
    model = onnx.load_model_from_string(make_model(steps, w=normal(RNG, size, 3)))
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", *shape]))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("shown", "declared", "turns", "said"),
    [
        ((4, 6, 3), (4, 6, 3), True, ""),
        ((3, 4, 6), (4, 6, 3), True, ""),  # whoever runs it turns what the environment shows
        ((3, 4, 6), (3, 4, 6), False, ""),
        ((4, 6, 3), (3, 4, 6), False, ""),
        ((3, 4, 6), (3, 4, 6), True, "puts the channels of images first"),
        ((4, 4, 4), (4, 4, 4), True, "puts the channels of images first"),
        ((4, 6, 3), (4, 6, 3), False, "reads images with channels last"),
    ],
)
def test_channels_are_where_the_graph_takes_them_from(shown: Any, declared: Any, turns: bool, said: str) -> None:
    chain = read(make_turning(declared, turns=turns))
    image, actions = spaces.Box(0, 255, shown, np.uint8), spaces.Discrete(3)
    with pytest.raises(PolicyError, match=said) if said else contextlib.nullcontext():
        adopt_chain(chain, image, actions, None, "policy.onnx")
    if turns:
        with pytest.raises(PolicyError, match="puts the channels of images first"):
            adopt_chain(chain, spaces.Box(-1, 1, shown), actions, None, "policy.onnx")


def test_means_are_taken_where_they_are_said_to_be() -> None:
    data = make_model([GEMM, ("Elu", "h", "a"), ("Gemm", "a w2 b2", "y")], outputs=6)
    with pytest.raises(
        PolicyError, match="6 outputs for 3 actions; if they are means and, behind them, SDs, pass --arch"
    ):
        compare(data)
    assert compare(data, means=True).net.outputs == 3


def spoil_external(data: bytes) -> bytes:
    model = onnx.load_model_from_string(data)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    return bytes(model.SerializeToString())


def spoil_shape(data: bytes) -> bytes:
    model = onnx.load_model_from_string(data)
    model.graph.initializer[0].dims[0] = 10**12
    return bytes(model.SerializeToString())


PLAIN: list[Step] = [GEMM, ("Relu", "h", "a"), END]
INTEGER = make_model([("DynamicQuantizeLinear", "x", "q s z"), ("MatMulInteger", "q w0", "y")])
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "no file": (lambda: b"\x00PK", "not an ONNX file, or damaged"),
    "empty": (lambda: b"", "of opset 0"),
    "old": (lambda: make_model(PLAIN, opset=8), "of opset 8; export it again with opset 9"),
    "external": (lambda: spoil_external(make_model(PLAIN)), "lie in another file, which is not opened"),
    "shape": (lambda: spoil_shape(make_model(PLAIN)), "claims the shape"),
    "integers": (lambda: INTEGER, "computes on integers: the file is quantized already"),
    "recurrent": (lambda: make_model([("RNN", "x w0 w1", "y")]), r"node 'y' \(RNN\) is recurrent in another way"),
    "unknown": (lambda: make_model([GEMM, ("Sin", "h", "a"), END]), r"node 'a' \(Sin\) begins no function"),
    "mish": (lambda: make_model([GEMM, ("Softplus", "h", "s"), ("Tanh", "s", "t"), ("Mul", "h t", "a"), END]),
             "begins no function with a portable form; known are Gemm"),
    "slope": (lambda: make_model([GEMM, ("LeakyRelu", "h", "a", {"alpha": 0.2}), END]), r"node 'a' \(LeakyRelu\)"),
    "branches": (lambda: make_model([GEMM, ("Relu", "h", "a"), ("Gemm", "a w1 b1", "p"), ("Gemm", "x w0 b0", "k"),
                                     ("Gemm", "k w1 b1", "q"), ("Add", "p q", "y")]), "begins one of several branches"),
    "no layer": (lambda: make_model([("Tanh", "x", "y")]), r"node 'y' \(Tanh\) stands in front of all layers"),
    "two functions": (lambda: make_model([GEMM, ("Relu", "h", "k"), ("Tanh", "k", "a"), END]),
                      "follows another activation"),
    "asymmetric": (lambda: make_model([("Clip", "x zero five", "k"), ("Gemm", "k w0 b0", "h"), *PLAIN[1:]]),
                   "known is one symmetric clip"),
    "reshape": (lambda: make_model([GEMM, ("Transpose", "h", "k"), ("Relu", "k", "a"), END]), "reshapes by more than"),
    "whole numbers": (lambda: make_model([GEMM, ("Cast", "h", "k", {"to": 6}), ("Relu", "k", "a"), END]),
                      "rounds to whole numbers"),
    "lost clip": (lambda: make_model([("Sub", "mean x", "k"), ("Clip", "k minus five", "n"), ("Gemm", "n w0 b0", "h"),
                                      *PLAIN[1:]]), "clips observations whose factors are not all positive"),
    "no parts": (lambda: make_model([GEMM, ("Slice", "h", "a"), END]), "of no known form|takes no plain part"),
    "columns": (lambda: make_model([("Conv", "x kernel", "h"), ("Mul", "h b1", "k"), ("Relu", "k", "y")],
                                   kernel=normal(RNG, 3, 3, 2, 2)), "along another axis than channels"),
    "padding": (lambda: make_model([("Conv", "x kernel", "h", {"auto_pad": "SAME_LOWER"}), ("Relu", "h", "y")],
                                   kernel=normal(RNG, 3, 3, 2, 2)), "no padding, dilation or groups"),
    "far clip": (lambda: make_model([GEMM, ("Clip", "h zero hundred", "a"), END], hundred=np.float32(100)),
                 "begins no function"),
    "far least": (lambda: make_model([GEMM, ("Relu", "h", "r"), ("Min", "r hundred", "a"), END],
                                     hundred=np.float32(100)), "begins no function"),
    "three": (lambda: make_model([GEMM, ("Mul", "h c", "m"), ("Max", "h m five", "a"), END]), "begins no function"),
    "softmax of rows": (lambda: make_model([*PLAIN[:-1], ("Gemm", "a w1 b1", "s"), ("Softmax", "s", "y", {"axis": 0})]),
                        "goes along another axis"),
    "argmax of rows": (lambda: make_model([*PLAIN[:-1], ("Gemm", "a w1 b1", "s"), ("ArgMax", "s", "y")]),
                       "goes along another axis"),
    "argmax of the last": (lambda: make_model([*PLAIN[:-1], ("Gemm", "a w1 b1", "s"), ("ArgMax", "s", "y",
                           {"axis": 1, "select_last_index": 1})]), "takes the last of equal outputs"),
    "index to bool": (lambda: make_model([*PLAIN[:-1], ("Gemm", "a w1 b1", "s"), ("ArgMax", "s", "i", {"axis": 1}),
                                          ("Cast", "i", "y", {"to": 9})]), "makes true and false of an index"),
    "dropping": (lambda: make_model([GEMM, ("Dropout", "h half yes", "k"), ("Relu", "k", "a"), END],
                                    yes=np.array(True)), "drops numbers; export the network in evaluation mode"),
    "norm of batches": (lambda: make_model([GEMM, ("BatchNormalization", "h scale b0 b0 variance", "k",
                        {"training_mode": 1}), ("Relu", "k", "a"), END], opset=15), "normalizes by the batch"),
    "rows of numbers": (lambda: make_model([GEMM, ("Relu", "h", "a"), ("Gemm", "a w1 b1", "s"), ("Mul", "s many", "y")],
                                           many=np.ones((8, 1), np.float32)), r"has a constant of shape \(8, 1\)"),
    "two axes": (lambda: make_model([("Add", "x row", "k"), ("Mul", "k each", "m"), ("Conv", "m kernel", "h"),
                                     ("Relu", "h", "y")], row=normal(RNG, 3), each=normal(RNG, 3, 1, 1),
                                    kernel=normal(RNG, 3, 3, 2, 2)), "along another axis than the node in front"),
    "domain": (lambda: make_model([("Gemm", "x w0 b0", "h", {"domain": "com.microsoft"}), ("Relu", "h", "a"), END]),
               "of the domain 'com.microsoft'"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_line(name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(PolicyError, match=said) as caught:
        read(make())
    assert str(caught.value).startswith("policy.onnx: ")
    assert "\n" not in str(caught.value)


def test_two_outputs_are_asked_for() -> None:
    model = onnx.load_model_from_string(make_model([GEMM, ("Relu", "h", "a"), END]))
    model.graph.output.append(helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, ["n", 16]))
    data = model.SerializeToString()
    with pytest.raises(PolicyError, match="outputs y, a; name the one that is the action, with --arch NAME"):
        read(data)
    assert len(read(data, "y").layers) == 2
    with pytest.raises(PolicyError, match="no output 'z'; there are y, a"):
        read(data, "z")


def test_statistics_stand_in_front_once() -> None:
    given = Normalization(np.zeros(6), np.ones(6))
    data = make_model([("Sub", "x mean", "n"), ("Gemm", "n w0 b0", "h"), ("Relu", "h", "a"), END])
    with pytest.raises(PolicyError, match="normalizes observations itself"):
        adopt_chain(read(data), BOX, UNIT, given, "policy.onnx")
    assert adopt_chain(read(make_model(PLAIN)), BOX, UNIT, given, "p").transform.normalization is not None
    with pytest.raises(PolicyError, match="a Linear layer of 6 inputs cannot follow"):
        adopt_chain(read(make_model(PLAIN)), spaces.Box(-1, 1, (7,)), UNIT, None, "p")


@given(
    st.sampled_from(sorted(FUNCTIONS)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=5),
)
@draw_examples(400)
def test_mutated_files_are_read_or_refused_in_one_line(name: str, changes: list[tuple[float, int]]) -> None:
    data = bytearray(make_model([GEMM, *FUNCTIONS[name][1], END]))
    for place, byte in changes:
        data[int(place**2 * (len(data) - 1))] = byte  # the nodes come first
    with contextlib.suppress(PolicyError), np.errstate(all="ignore"):
        adopt_chain(read(bytes(data)), BOX, UNIT, None, "policy.onnx")


@robot
def test_a_walking_robot(tmp_path: Any) -> None:
    """The policy of the Go1: its actions are onnxruntime's, and it walks for a while in our environment."""
    pytest.importorskip("mujoco")
    import_path = ROOT / "docs" / "examples" / "robots"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(import_path))
        kind = import_attribute("go1:Go1")
        source = PolicySource(
            ROBOT / "go1_policy.onnx", kind, env_kwargs={"model": str(ROBOT / "scene_mjx_feetonly_flat_terrain.xml")}
        )
        before = time.perf_counter()
        read_chain(read_graph((ROBOT / "go1_policy.onnx").read_bytes(), "go1"))
        assert time.perf_counter() - before < 1
        stored, environment = open_task(source)
        x = normal(np.random.default_rng(1), 10_000, 48, spread=1.0)
        session = runtime.InferenceSession(str(ROBOT / "go1_policy.onnx"), providers=["CPUExecutionProvider"])
        expected = np.concatenate([session.run(None, {"obs": row[None]})[0] for row in x])
        np.testing.assert_allclose(stored.policy.act(x), expected, atol=1e-5)
        game = gymnasium.make(environment.id)
        observation, _ = game.reset(seed=10_000)
        total = 0.0
        for _ in range(100):
            observation, reward, fallen, _, _ = game.step(stored.policy.act(observation[None])[0])
            total += float(reward)
            assert not fallen
        assert total > 1.2  # of the 2 that perfect tracking gives
