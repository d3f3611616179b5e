"""ONNX files with an LSTM or a GRU: over whole sequences they act as in onnxruntime, and other memories are named."""

import contextlib
import io
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.onnx.qdq import write_float_model
from quarl_bench.errors import PolicyError
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.onnx.ends import adopt_chain
from quarl_bench.policies.sources.onnx.file import read_graph
from quarl_bench.policies.sources.onnx.graph import read_chain
from quarl_bench.quantization.recurrent.cells import CellKind
from tests.support.sizes import choose, draw_examples
from tests.support.strategies import make_recurrent, normal

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
helper = onnx.helper
pytestmark = pytest.mark.needs("onnx")
INPUTS, UNITS = 3, 5
STEPS, LENGTH = 120, 30  # of a comparison, and of its episodes
ACTIONS = spaces.Box(-100, 100, (2,))
KINDS = list(CellKind)
MODULES = {CellKind.LSTM: torch.nn.LSTM, CellKind.GRU: torch.nn.GRU}
CELLS = {CellKind.LSTM: torch.nn.LSTMCell, CellKind.GRU: torch.nn.GRUCell}
NAMES = {CellKind.LSTM: ("h", "c"), CellKind.GRU: ("h",)}


def read(data: bytes, output: str | None = None, inputs: int = INPUTS) -> PolicyNet:
    chain = read_chain(read_graph(data, "policy.onnx", output))
    return adopt_chain(chain, spaces.Box(-np.inf, np.inf, (inputs,)), ACTIONS, None, "policy.onnx")


def compare(data: bytes, behind: dict[str, str], output: str = "y", inputs: int = INPUTS) -> PolicyNet:
    """Read a policy, and hold its actions against onnxruntime's, whose state goes from outputs to inputs (`behind`)."""
    policy = read(data, inputs=inputs)
    session = runtime.InferenceSession(data, providers=["CPUExecutionProvider"])
    seen = next(port.name for port in session.get_inputs() if port.name not in behind)
    shapes = {port.name: [n if isinstance(n, int) else 1 for n in port.shape] for port in session.get_inputs()}
    for step, row in enumerate(normal(np.random.default_rng(1), STEPS, 1, inputs, spread=2.0)):
        if step % LENGTH == 0:
            state, kept = policy.initial_state(1), {name: np.zeros(shapes[name], np.float32) for name in behind}
        expected, *after = session.run([output, *behind.values()], {seen: row.reshape(shapes[seen])} | kept)
        actions, state = policy.act(row, state)
        kept = dict(zip(behind, after, strict=True))
        np.testing.assert_allclose(actions, expected.reshape(1, -1), rtol=0, atol=1e-5)
    return policy


def pair(names: tuple[str, ...], before: str = "_in", after: str = "_out") -> dict[str, str]:
    return {f"{name}{before}": f"{name}{after}" for name in names}


Step = tuple[str, str, str] | tuple[str, str, str, dict[str, Any]]
GATES = {CellKind.LSTM: 4, CellKind.GRU: 3}
RNG = np.random.default_rng(0)


def draw_weights(kind: CellKind) -> dict[str, Any]:
    rows = GATES[kind] * UNITS
    return {
        "W": normal(RNG, 1, rows, INPUTS, spread=0.5), "R": normal(RNG, 1, rows, UNITS, spread=0.5),
        "B": normal(RNG, 1, 2 * rows, spread=0.5), "w0": normal(RNG, UNITS, 2), "b0": normal(RNG, 2),
        "mean": normal(RNG, INPUTS), "sd": np.abs(normal(RNG, INPUTS)) + 0.5, "zero": np.array([0]),
        "one": np.array([1]), "both": np.array([0, 1]), "none": np.zeros((1, 1, UNITS), np.float32),
        "rows": np.array([1, -1]), "all": np.array([1, 1, -1]), "last": np.array(-1), "P": normal(RNG, 1, 3 * UNITS),
        "lengths": np.array([1], np.int32), "w1": normal(RNG, 2, INPUTS), "far": np.array([2]), "two": np.array([2]),
        "bias": normal(RNG, 1, 1, UNITS), "column": normal(RNG, UNITS, 1),
    }  # fmt: skip


WEIGHTS = {kind: draw_weights(kind) for kind in KINDS}
PLAIN: dict[CellKind, dict[str, Any]] = {CellKind.LSTM: {}, CellKind.GRU: {"linear_before_reset": 1}}


def make_model(
    kind: CellKind,
    steps: list[Step],
    opset: int = 17,
    *,
    observation: tuple[Any, ...] = (1, INPUTS),
    states: tuple[str, ...] | None = None,
    outputs: tuple[str, ...] | None = None,
    layers: int = 1,
    **changed: Any,
) -> bytes:
    """Nodes as (operator, inputs, outputs); the input is x, the output y, and states are h_in, c_in, h_out, c_out."""
    names = NAMES[kind]
    states = tuple(f"{name}_in" for name in names) if states is None else states
    outputs = tuple(f"{name}_out" for name in names) if outputs is None else outputs
    nodes = []
    for number, (operator, inputs, made, *rest) in enumerate(steps):
        read_by = [name.replace("-", "") for name in inputs.split()]
        nodes.append(helper.make_node(operator, read_by, made.split(), name=f"n{number}", **(rest[0] if rest else {})))
    used = {name for node in nodes for name in node.input}
    stored = [
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in (WEIGHTS[kind] | changed).items()
        if name in used
    ]
    shape = (layers, 1, UNITS)
    ends = [("x", observation), *((name, shape) for name in states)], [("y", None), *((name, None) for name in outputs)]
    ports = [[helper.make_tensor_value_info(name, 1, size) for name, size in side] for side in ends]
    graph = helper.make_graph(nodes, "policy", *ports, stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(model.SerializeToString())


def axes(opset: int, operator: str, read: str, given: str, name: str) -> Step:
    """Squeeze and Unsqueeze have their axes as an input since opset 13."""
    if opset >= 13:
        return (operator, f"{read} {name}", given)
    return (operator, read, given, {"axes": WEIGHTS[CellKind.LSTM][name].tolist()})


def cell(kind: CellKind, read: str = "s", **changed: Any) -> Step:
    names = NAMES[kind]
    inputs = f"{read} W R B - {' '.join(f'{name}_in' for name in names)}"
    given = f"Y {' '.join(f'{name}_out' for name in names)}"
    return (kind.upper(), inputs, given, PLAIN[kind] | {"hidden_size": UNITS} | changed)


END: Step = ("Gemm", "q w0 b0", "y")


@pytest.mark.parametrize("opset", [9, 11, 13, 14, 17, 18, 21, 22])
@pytest.mark.parametrize("kind", KINDS)
def test_a_node_between_layers(kind: CellKind, opset: int) -> None:
    data = make_model(
        kind,
        [
            ("Sub", "x mean", "k"), ("Div", "k sd", "n"), axes(opset, "Unsqueeze", "n", "s", "zero"), cell(kind),
            axes(opset, "Squeeze", "Y", "p", "one"), axes(opset, "Squeeze", "p", "q", "zero"), END,
        ],
        opset,
    )  # fmt: skip
    policy = compare(data, pair(NAMES[kind]))
    assert [(cell.kind, cell.place) for cell in policy.net.cells] == [(kind, 0)]
    assert policy.transform.normalization is not None


FORMS: dict[str, list[Step]] = {  # how features come to the cell, and what is read of it
    "the state itself": [("Unsqueeze", "x zero", "s"), ("Squeeze", "h_out zero", "q"), END],
    "the batch in front": [
        ("Unsqueeze", "x one", "b"), ("Transpose", "b", "s", {"perm": [1, 0, 2]}), ("Squeeze", "Y one", "p"),
        ("Transpose", "p", "t", {"perm": [1, 0, 2]}), ("Gather", "t last", "q", {"axis": 1}), END,
    ],
    "reshaped": [("Reshape", "x all", "s"), ("Reshape", "Y rows", "q"), END],
    "flat": [("Reshape", "x all", "s"), ("Flatten", "Y", "q", {"axis": 3}), END],
    "in three axes": [
        ("Reshape", "x all", "s"), ("Squeeze", "Y one", "p"), ("Add", "p bias", "a"), ("MatMul", "a w0", "m"),
        ("Add", "m b0", "k"), ("Tanh", "k", "t"), ("Squeeze", "t zero", "y"),
    ],
    "a part": [
        ("Reshape", "x all", "s"), ("Squeeze", "Y one", "p"), ("MatMul", "p w1", "m"),
        ("Gather", "m both", "y", {"axis": -1}),
    ],
    "a layer in front": [
        ("MatMul", "x w1x", "m"), ("Relu", "m", "r"), ("Unsqueeze", "r zero", "s"), ("Squeeze", "Y both", "q"), END,
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_axes_of_size_one_come_and_go(kind: CellKind, form: str) -> None:
    steps, changed = list(FORMS[form]), {"w1x": normal(RNG, INPUTS, INPUTS), "w1": normal(RNG, UNITS, 3)}
    place = next(i for i, step in enumerate(steps) if step[2] == "s") + 1
    data = make_model(kind, [*steps[:place], cell(kind), *steps[place:]], **changed)
    compare(data, pair(NAMES[kind]))


def test_states_are_found_by_what_is_done_to_them() -> None:
    """Names that lie, and axes that are moved in front of the cell and behind it."""
    moved = [step for name in ("h", "c") for step in (("Squeeze", f"{name}_state zero", f"{name}_row"),
                                                      ("Unsqueeze", f"{name}_row zero", f"{name}_in"))]  # fmt: skip
    node: Step = ("LSTM", "s W R B - h_in c_in", "Y c_out h_out", {"hidden_size": UNITS})
    data = make_model(LSTM, [FRONT, *moved, node, *BACK], states=("h_state", "c_state"))
    compare(data, {"h_state": "c_out", "c_state": "h_out"})


@pytest.mark.parametrize("kind", KINDS)
def test_two_layers_share_an_input_and_an_output(kind: CellKind) -> None:
    """As torch's exporter writes them."""
    names, steps, read_from = NAMES[kind], [("Unsqueeze", "x zero", "s")], "s"
    for layer in (0, 1):
        start, end = (("zero", "one"), ("one", "two"))[layer]
        steps += [("Slice", f"{name}_in {start} {end} zero", f"{name}{layer}") for name in names]
        weights = "W R B" if layer == 0 else "V R B"
        inputs = f"{read_from} {weights} - {' '.join(f'{name}{layer}' for name in names)}"
        behind = " ".join(f"{name}b{layer}" for name in names)
        steps += [(kind.upper(), inputs, f"Y{layer} {behind}", PLAIN[kind] | {"hidden_size": UNITS})]
        steps += [("Squeeze", f"Y{layer} one", f"p{layer}")]
        read_from = f"p{layer}"
    steps += [("Concat", f"{name}b0 {name}b1", f"{name}_out", {"axis": 0}) for name in names]
    steps += [("Squeeze", "p1 zero", "q"), END]
    second = {"V": normal(RNG, 1, GATES[kind] * UNITS, UNITS, spread=0.5)}
    policy = compare(make_model(kind, steps, layers=2, **second), pair(names))
    assert [cell.place for cell in policy.net.cells] == [0, 2]
    crossed = [
        ("Concat", " ".join(step[1].split()[::-1]), *step[2:]) if step[0] == "Concat" else step for step in steps
    ]
    with pytest.raises(PolicyError, match="loses its state: no output is what 'h_in' becomes"):
        read(make_model(kind, crossed, layers=2, **second))
    name = names[0]  # an output that is the second layer's alone, where the first one's is looked for
    apart = [*steps, ("Gather", f"{name}_out both2", f"{name}_alone", {"axis": 0})]
    others = (f"{name}_alone", *(f"{other}_out" for other in names[1:]))
    with pytest.raises(PolicyError, match="loses its state: no output is what 'h_in' becomes"):
        read(make_model(kind, apart, layers=2, outputs=others, both2=np.array([1]), **second))


@pytest.mark.parametrize("before", [0, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_files_of_our_own_come_back(kind: CellKind, before: int) -> None:
    policy = make_recurrent(kind, before=before)
    data, names = write_float_model(policy.net), ("hidden", "cell")[: len(NAMES[kind])]
    net = compare(data, pair(tuple(f"cells.0.{name}" for name in names), "", ".next"), "output", inputs=4).net
    assert net.cells == policy.net.cells
    for layer, found in zip(policy.net.layers, net.layers, strict=True):
        assert found.activation is layer.activation
        np.testing.assert_array_equal(found.weight, layer.weight)
        np.testing.assert_array_equal(found.bias, layer.bias)


class Network(torch.nn.Module):
    """As rsl_rl exports its own: a state that goes in and comes out."""

    def __init__(self, kind: CellKind, layers: int) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.memory = MODULES[kind](INPUTS, UNITS, layers) if layers else CELLS[kind](INPUTS, UNITS)
        self.layers = torch.nn.Sequential(torch.nn.Linear(UNITS, 4), torch.nn.ELU(), torch.nn.Linear(4, 2))
        self.whole = layers > 0

    def forward(self, x: Any, h_in: Any, c_in: Any = None) -> Any:
        state = h_in if c_in is None else (h_in, c_in)
        if self.whole:
            seen, after = self.memory(x.unsqueeze(0), state)
            seen = seen.squeeze(0)
        else:
            after = self.memory(x, state)
            seen = after if c_in is None else after[0]
        return (self.layers(seen), *((after,) if c_in is None else after))


def export(kind: CellKind, layers: int, opset: int, *, traced: bool) -> bytes:
    names = NAMES[kind]
    state = [torch.zeros((layers, 1, UNITS) if layers else (1, UNITS)) for _ in names]
    stream = io.BytesIO()
    torch.onnx.export(
        Network(kind, layers).eval(),
        (torch.zeros(1, INPUTS), *state),
        stream,
        input_names=["x", *(f"{name}_in" for name in names)],
        output_names=["y", *(f"{name}_out" for name in names)],
        dynamo=not traced,
        opset_version=opset,
        external_data=False,
        verbose=False,
    )
    return stream.getvalue()


EXPORTS = [
    (kind, layers, opset, traced)
    for kind in KINDS
    for layers in (1, 2, 0)
    for traced, opset in [*choose([], [(True, 9), (True, 11), (True, 17), (False, 20)]), (True, 14), (False, 18)]
    if traced or (kind, layers) in choose([(CellKind.GRU, 0)], list(product(KINDS, (1, 2, 0))))
]  # those that are not traced take a second each


@pytest.mark.filterwarnings("ignore")  # what the exporters say of themselves
@pytest.mark.parametrize("kind, layers, opset, traced", EXPORTS)
def test_torch_s_own_exports(kind: CellKind, layers: int, opset: int, traced: bool) -> None:
    """Of modules with one layer and two, and of a cell, which is composed of gates."""
    policy = compare(export(kind, layers, opset, traced=traced), pair(NAMES[kind]))
    assert [cell.kind for cell in policy.net.cells] == [kind] * max(layers, 1)
    module = Network(kind, layers).memory
    suffix = "_l0" if layers else ""
    np.testing.assert_array_equal(policy.net.layers[0].weight, getattr(module, f"weight_ih{suffix}").detach().numpy())
    np.testing.assert_array_equal(policy.net.layers[1].bias, getattr(module, f"bias_hh{suffix}").detach().numpy())


FRONT: Step = ("Unsqueeze", "x zero", "s")
BACK: list[Step] = [("Squeeze", "Y both", "q"), END]
LSTM, GRU = CellKind.LSTM, CellKind.GRU


def wrap(step: Step, kind: CellKind = LSTM, **changed: Any) -> Callable[[], bytes]:
    return lambda: make_model(kind, [FRONT, step, *BACK], **changed)


INPUT = "s W R B - h_in c_in"
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "both ways": (wrap(cell(LSTM, direction="bidirectional")), "reads both ways or backwards"),
    "backwards": (wrap(cell(LSTM, direction="reverse")), "reads both ways or backwards"),
    "activations": (wrap(cell(LSTM, activations=["Sigmoid", "Relu", "Tanh"])), "activations of its own, a clip, or"),
    "clip": (wrap(cell(LSTM, clip=3.0)), "activations of its own, a clip, or joined gates"),
    "joined gates": (wrap(cell(LSTM, input_forget=1)), "joined gates"),
    "reset": (wrap(cell(GRU, linear_before_reset=0), GRU), "resets in front of its layer"),
    "peepholes": (wrap(("LSTM", f"{INPUT} P", "Y h_out c_out")), "lengths of sequences, peepholes"),
    "lengths": (wrap(("LSTM", "s W R B lengths h_in c_in", "Y h_out c_out")), "lengths of sequences"),
    "layout": (wrap(cell(LSTM, layout=1)), "or the batch in front"),
    "size": (wrap(cell(LSTM, hidden_size=4)), "which are none of its gates"),
    "gates": (wrap(cell(LSTM), W=normal(RNG, 1, 16, 3)), "which are none of its gates"),
    "bias": (wrap(cell(LSTM), B=normal(RNG, 1, 20)), "which are none of its gates"),
    "flat weights": (wrap(cell(LSTM), W=normal(RNG, 20, 3)), "which are none of its gates"),
    "weights": (wrap(("LSTM", "s x R B - h_in c_in", "Y h_out c_out")), "has weights that are no constants"),
    "no state": (wrap(("LSTM", "s W R B", "Y h_out c_out"), states=()), "begins every step anew"),
    "zeros": (wrap(("LSTM", "s W R B - none none", "Y h_out c_out"), states=()), "begins every step anew"),
    "rounded": (
        lambda: make_model(LSTM, [FRONT, ("Cast", "h_in", "i", {"to": 6}), ("Cast", "i", "j", {"to": 1}),
                                  ("LSTM", "s W R B - j c_in", "Y h_out c_out"), *BACK]), "begins every step anew"),
    "lost": (wrap(cell(LSTM), outputs=("h_out",)), "loses its state: no output is what 'c_in' becomes"),
    "read twice": (
        lambda: make_model(LSTM, [FRONT, cell(LSTM), ("Squeeze", "Y both", "a"), ("Squeeze", "h_out both", "b"),
                                  ("Add", "a b", "q"), END]), "is read in 2 ways"),
    "state elsewhere": (
        lambda: make_model(LSTM, [FRONT, cell(LSTM), ("Add", "Y h_in", "a"), ("Squeeze", "a both", "q"), END]),
        r"2 inputs \(x, h_in\)"),
    "cell state": (
        lambda: make_model(LSTM, [FRONT, cell(LSTM), ("Add", "Y c_out", "a"), ("Squeeze", "a both", "q"), END]),
        "joins two branches"),
    "several": (wrap(cell(LSTM), observation=(4, INPUTS)), r"reads observations of shape \(4, 3\); export it with one"),
    "features apart": (
        lambda: make_model(LSTM, [("Unsqueeze", "x two", "a"), ("Reshape", "a all", "s"), cell(LSTM), *BACK]),
        "reshapes by more than flattening"),
    "turned": (
        lambda: make_model(LSTM, [FRONT, cell(LSTM), ("Squeeze", "Y one", "p"),
                                  ("Transpose", "p", "q", {"perm": [0, 2, 1]}), END]), "reshapes by more"),
    "column": (
        lambda: make_model(LSTM, [FRONT, cell(LSTM), ("Squeeze", "Y both", "p"), ("Add", "p column", "q"), END]),
        r"has a constant of shape \(5, 1\)"),
    "another": (wrap(("RNN", "s W R B - h_in", "Y h_out")), "recurrent in another way than an LSTM or a GRU"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_memories_are_refused_in_one_line(name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(PolicyError, match=said) as caught:
        read(make())
    assert str(caught.value).startswith("policy.onnx: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def spoil_composed(change: Callable[[Any], None]) -> bytes:
    model = onnx.load_model_from_string(write_float_model(make_recurrent(LSTM).net))
    change(model.graph)
    return bytes(model.SerializeToString())


def find(graph: Any, operator: str) -> Any:
    return next(node for node in graph.node if node.op_type == operator)


def swap(graph: Any) -> None:
    outputs = find(graph, "Split").output
    outputs[0], outputs[2] = outputs[2], outputs[0]


def clip_late(graph: Any) -> None:
    """A bound that only large numbers meet."""
    graph.initializer.extend([onnx.numpy_helper.from_array(np.float32(value), f"b{value}") for value in (-30, 30)])
    node = next(node for node in graph.node if node.output[0] == "cells.0.cell.behind")
    node.output[0] = "unbounded"
    graph.node.insert(
        list(graph.node).index(node) + 1,
        helper.make_node("Clip", ["unbounded", "b-30", "b30"], ["cells.0.cell.behind"]),
    )


COMPOSED: dict[str, Callable[[Any], None]] = {
    "other gates": swap,
    "another activation": lambda graph: setattr(find(graph, "Tanh"), "op_type", "Softsign"),
    "a bound": clip_late,
}


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_composed_otherwise_is_no_cell(name: str) -> None:
    with pytest.raises(PolicyError, match="are no LSTM and no GRU as torch has them; export the module itself"):
        read(spoil_composed(COMPOSED[name]), inputs=4)


@given(
    st.sampled_from(["node", "composed"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=5),
)
@draw_examples(400)
def test_mutated_files_are_read_or_refused_in_one_line(form: str, changes: list[tuple[float, int]]) -> None:
    whole = wrap(cell(GRU), GRU)() if form == "node" else write_float_model(make_recurrent(GRU).net)
    data = bytearray(whole)
    for place, byte in changes:
        data[int(place**2 * (len(data) - 1))] = byte  # the nodes come first
    with contextlib.suppress(PolicyError), np.errstate(all="ignore"):
        read(bytes(data), inputs=INPUTS if form == "node" else 4)
