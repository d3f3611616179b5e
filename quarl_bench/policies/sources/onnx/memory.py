"""The memory of a graph: which of its inputs are the state, which outputs it becomes, and the cells between them.

An LSTM or a GRU is a node of its own, or what an exporter composed it of (`composed`). Either becomes a node `Gates`
behind the layer that maps the cell's input, as a net has its cells. What a state becomes has to be an output: a file
that forgets it is refused.
"""

from dataclasses import dataclass, field

import numpy as np

from quarl_bench.policies.sources.onnx.composed import compose_cell
from quarl_bench.policies.sources.onnx.nodes import FLOATS, Array, Graph, Node
from quarl_bench.policies.sources.onnx.shapes import SHAPES
from quarl_bench.quantization.recurrent.cells import GATES, CellKind

KINDS = {"LSTM": CellKind.LSTM, "GRU": CellKind.GRU}
ORDER = {CellKind.LSTM: (0, 2, 3, 1), CellKind.GRU: (1, 0, 2)}  # of torch's gates among ONNX's
PLAIN = {CellKind.LSTM: [b"Sigmoid", b"Tanh", b"Tanh"], CellKind.GRU: [b"Sigmoid", b"Tanh"]}
MOVED = ("Identity", "Cast", *SHAPES)  # between a state and its cell
CUT = ("starts", "ends", "axes")


def find_memory(graph: Graph, inputs: list[str], outputs: list[str]) -> tuple[tuple[Node, ...], frozenset[str]]:
    """The nodes with every cell as `Gates`, and those of the outputs that are states; PolicyError for other cells."""
    finder = _Finder(graph, inputs, outputs)
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += finder.translate(node) if node.operator in KINDS else [node]
    pairs = {name: end for name in inputs if name not in finder.pairs and (end := _find_partner(name, outputs))}
    return finder.compose(nodes, pairs), frozenset(finder.pairs.values())


def _find_partner(name: str, outputs: list[str]) -> str:
    """The output that a state becomes by its name: `h.next` of h, `h_out` of h_in; "" where there is none."""
    found = [f"{name}.next", f"{name.removesuffix('_in')}_out" if name.endswith("_in") else ""]
    return next((output for output in found if output and output in outputs), "")


@dataclass(eq=False)
class _Finder:
    graph: Graph
    inputs: list[str]
    outputs: list[str]
    pairs: dict[str, str] = field(default_factory=dict)  # outputs by the states that they are behind the step

    def __post_init__(self) -> None:
        self._makers = {name: node for node in self.graph.nodes for name in node.outputs if name}

    def translate(self, node: Node) -> list[Node]:
        """The layer of the input, and `Gates` of an LSTM or a GRU."""
        kind, constants = KINDS[node.operator], self.graph.constants
        given = [*node.inputs, *[""] * 8][:8]
        ends = [*node.outputs, *[""] * 3][:3]
        read, *weights, lengths = given[:5]
        known = [constants.get(name) for name in weights]
        fault = self._find_fault(node, kind, known, lengths, given[7] if kind is CellKind.LSTM else "")
        if fault or known[0] is None or known[1] is None:
            raise self.graph.refuse(node, fault)
        self._close(node, given[5], {*ends[:2]} - {""})
        if kind is CellKind.LSTM:
            self._close(node, given[6], {ends[2]} - {""})
        order, gates = ORDER[kind], GATES[kind]
        first, second = (_sort(part[0], gates, order) for part in (known[0], known[1]))
        both = np.zeros(2 * len(first)) if known[2] is None else known[2][0]
        biases = (_sort(part, gates, order) for part in np.split(both, 2))
        names = self._store(node, first, next(biases), second, next(biases))
        sums = f"{names[0]}.sums"
        return [
            Node("Gemm", node.name, (read, *names[:2]), (sums,), {"transB": 1}),
            Node("Gates", node.name, (sums, *names[2:]), tuple(ends[:2]), {"kind": kind, "ranks": (4, 3)}),
        ]

    def compose(self, nodes: list[Node], pairs: dict[str, str]) -> tuple[Node, ...]:
        """Those with the cells that an exporter composed of other nodes, whose states are `pairs` by their names."""
        for state in pairs:
            joints = [node for node in nodes if state in node.inputs and node.operator in ("Gemm", "MatMul")]
            if len(joints) != 1:
                continue
            traced = {name: self._find_row(output, 0) for name, output in pairs.items()}
            graph = Graph(self.graph.where, "", "", tuple(nodes), self.graph.constants)
            cell = compose_cell(graph, joints[0], state, traced)
            names = self._store(joints[0], cell.weight, cell.bias)
            gates = Node("Gates", joints[0].name, (cell.sums, *names), (traced[state],), {"kind": cell.kind})
            left = {id(node) for node in cell.nodes}
            nodes = [gates if node is joints[0] else node for node in nodes if id(node) not in left]
            self.pairs |= {name: pairs[name] for name in cell.states}
        return tuple(nodes)

    def _find_fault(self, node: Node, kind: CellKind, known: list[Array | None], lengths: str, peepholes: str) -> str:
        """What a cell here has no form for."""
        given, gates = node.attributes, GATES[kind]
        if given.get("direction", b"forward") != b"forward":
            return "reads both ways or backwards; export a forward one"
        if given.get("activations", PLAIN[kind]) != PLAIN[kind] or "clip" in given or given.get("input_forget", 0):
            return "has activations of its own, a clip, or joined gates; export one as torch has it"
        if kind is CellKind.GRU and not given.get("linear_before_reset", 0):
            return "resets in front of its layer; export one as torch has it (linear_before_reset=1)"
        if lengths or peepholes or given.get("layout", 0):
            return (
                "has lengths of sequences, peepholes, or the batch in front; export one observation in (1, 1, features)"
            )
        if any(part is None for part in known[:2]) or (len(node.inputs) > 3 and node.inputs[3] and known[2] is None):
            return "has weights that are no constants; export it with constants folded"
        shapes = [part.shape for part in known if part is not None]
        width = shapes[1][-1] if len(shapes[1]) == 3 else 0
        fits = len(shapes[0]) == 3 and shapes[0][:2] == shapes[1][:2] == (1, gates * width) and shapes[0][2] > 0
        fits &= given.get("hidden_size", width) == width
        if not width or not fits or shapes[2:] not in ([], [(1, 2 * gates * width)]):
            return f"has weights of shapes {str(shapes)[:80]}, which are none of its gates; export it again"
        return ""

    def _close(self, node: Node, state: str, behind: set[str]) -> None:
        """Note the output that a state becomes."""
        source, taken = self._trace(state)
        if source not in self.inputs:
            why = "begins every step anew; export its state as an input, and as an output behind it"
            raise self.graph.refuse(node, why)
        row = max(taken, 0)
        ends = (output for output in self.outputs if self._find_row(output, row) in behind)
        found = self.pairs.get(source) or next(ends, "")
        if self._find_row(found, row) not in behind:
            raise self.graph.refuse(node, f"loses its state: no output is what {source[:40]!r} becomes; export it too")
        self.pairs[source] = found

    def _trace(self, tensor: str) -> tuple[str, int]:
        """Where a tensor comes from, through nodes that move axes, and which row of that it is; -1 where it is all."""
        row = -1
        for _ in self.graph.nodes:
            node = self._makers.get(tensor)
            taken = -1 if node is None else self._find_taken(node, tensor)
            if node is None or (not _only_moves(node) and (taken < 0 or row >= 0)):
                break
            row, tensor = (taken if taken >= 0 else row), node.inputs[0]
        return tensor, row

    def _find_taken(self, node: Node, tensor: str) -> int:
        """The one row that a node takes of a state of several layers, -1 of any other node."""
        numbers = [self.graph.constants.get(name) for name in node.inputs[1:] if name]
        if node.operator == "Split" and node.attributes.get("axis", 0) == 0:
            return node.outputs.index(tensor)
        if any(part is None or part.size != 1 for part in numbers):
            return -1
        values = [int(part.reshape(())) for part in numbers if part is not None]
        if node.operator == "Gather" and node.attributes.get("axis", 0) == 0 and values:
            return values[0]
        if node.operator == "Slice":
            named = [
                node.attributes.get(name, [values[i]] if i < len(values) else [0])[0] for i, name in enumerate(CUT)
            ]
            start, end, axis = named
            return start if axis == 0 and end == start + 1 and values[3:] in ([], [1]) else -1
        return -1

    def _find_row(self, output: str, row: int) -> str:
        """The tensor that a row of an output is; "" where it has none."""
        tensor, taken = self._trace(output)
        node = self._makers.get(tensor)
        if taken >= 0:
            return ""
        if node is None or node.operator != "Concat":
            return tensor if row == 0 else ""
        if node.attributes.get("axis", 0) != 0 or row >= len(node.inputs):
            return ""
        tensor, taken = self._trace(node.inputs[row])
        return tensor if taken < 0 else ""

    def _store(self, node: Node, *arrays: Array) -> list[str]:
        """Names of constants under which a cell's numbers are now known."""
        names = [f"{next(filter(None, node.outputs), '')}:{place}" for place in range(len(arrays))]
        if any(name in self.graph.constants or name in self._makers for name in names):
            raise self.graph.refuse(node, "is there twice; export it again")
        self.graph.constants.update(zip(names, arrays, strict=True))
        return names


def _only_moves(node: Node) -> bool:
    """Whether a node leaves the numbers of a state as they are."""
    return node.operator in MOVED and (node.operator != "Cast" or node.attributes.get("to") in FLOATS)


def _sort(array: Array, gates: int, order: tuple[int, ...]) -> Array:
    """The rows of every gate, in another order of gates."""
    parts = np.split(array, gates)
    return np.concatenate([parts[place] for place in order])
