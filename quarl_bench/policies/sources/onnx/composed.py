"""Cells that an exporter composed of elementwise nodes: they are evaluated on drawn numbers, and compared with a cell.

So an LSTM or a GRU is found however its gates are split and joined, as an activation is found (`functions`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.onnx.functions import FUNCTIONS, evaluate
from quarl_bench.policies.sources.onnx.nodes import Doubles, Graph, Node, find_needed, read_linear
from quarl_bench.quantization.recurrent.cells import GATES, Cell, CellKind

ROWS, MAGNITUDES = 16, (0.1, 1.0, 10.0, 100.0)  # of drawn numbers
TOLERANCE = 1e-6
PARTS = ("Split", "Slice")  # of the sums, which are one for each gate


@dataclass(frozen=True, eq=False)
class Composed:
    """A cell: the tensor of its input's sums, the layer of its hidden state, its states, and the nodes in its place."""

    kind: CellKind
    sums: str
    weight: Doubles
    bias: Doubles
    states: tuple[str, ...]
    nodes: tuple[Node, ...]


def compose_cell(graph: Graph, joint: Node, hidden: str, behind: dict[str, str]) -> Composed:
    """The cell whose hidden state enters by `joint`; `behind` has the tensors that states become.

    PolicyError where the nodes between compute anything else than torch's LSTM or GRU.
    """
    unknown = PolicyError(
        f"{graph.where}: {joint} and what follows it are no LSTM and no GRU as torch has them; export the module itself"
    )
    try:
        weight, bias = read_linear(joint, graph.constants)
    except (ValueError, LookupError) as error:
        raise unknown from error
    region = _find_region(graph, joint, hidden, behind)
    others = [name for name in behind if name != hidden and any(name in node.inputs for node in region)]
    kind = CellKind.LSTM if others else CellKind.GRU
    width = weight.shape[1]
    if len(others) > 1 or len(weight) != GATES[kind] * width or not width or joint.inputs[0] != hidden:
        raise unknown
    sums, region = _find_sums(graph, region, {joint.outputs[0], hidden, *others})
    generator = np.random.default_rng(0)
    x, h, *memory = (
        np.concatenate([generator.standard_normal((ROWS, size)) * magnitude for magnitude in MAGNITUDES])
        for size in (len(weight), width, *[width] * len(others))
    )
    values = {sums: x, hidden: h, joint.outputs[0]: h @ weight.T + bias} | dict(zip(others, memory, strict=True))
    first, second, *state = (torch.from_numpy(part) for part in (x, values[joint.outputs[0]], h, *memory))
    _, expected = Cell(kind, 0).advance(first, second, state)
    for node in region:
        values |= _evaluate(graph, node, values)
    for name, part in zip((hidden, *others), expected, strict=True):
        found, wanted = values.get(behind[name]), part.numpy()
        if found is None or found.shape != wanted.shape:
            raise unknown
        if not (np.abs(found - wanted) <= TOLERANCE * (1 + np.abs(wanted))).all():
            raise unknown
    return Composed(kind, sums, weight, bias, (hidden, *others), region)


def _find_region(graph: Graph, joint: Node, hidden: str, behind: dict[str, str]) -> tuple[Node, ...]:
    """The nodes between a hidden state and what it becomes."""
    reached = {hidden}
    for node in graph.nodes:
        if reached & {*node.inputs}:
            reached |= {*node.outputs}
    needed = find_needed([*graph.nodes], behind[hidden])
    return tuple(node for node in needed if node is not joint and reached & {*node.inputs})


def _find_sums(graph: Graph, region: tuple[Node, ...], known: set[str]) -> tuple[str, tuple[Node, ...]]:
    """The one tensor that a region reads beside the state, and the region with the nodes that split that tensor."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    while True:
        made = {name for node in region for name in node.outputs} | known | graph.constants.keys()
        read = {name for node in region for name in node.inputs if name} - made
        if len(read) == 1:
            return read.pop(), region
        parts = {id(node): node for name in read if (node := makers.get(name)) is not None and node.operator in PARTS}
        if not parts:
            raise PolicyError(f"{graph.where}: {len(read)} tensors join a state; known is a cell's one input")
        region = (*parts.values(), *region)


def _evaluate(graph: Graph, node: Node, values: dict[str, Any]) -> dict[str, Doubles]:
    """What a node gives, of arrays (rows, columns) and numbers."""
    if node.operator == "Identity":
        return {node.outputs[0]: values[node.inputs[0]]}
    if node.operator not in PARTS:
        if node.operator not in FUNCTIONS or any(
            graph.constants[name].size != 1 for name in _list_constants(graph, node)
        ):
            raise PolicyError(f"{graph.where}: {node} stands in no LSTM and no GRU; export the module itself")
        return {node.outputs[0]: evaluate(graph, node, values)}
    whole, given = values[node.inputs[0]], node.attributes
    numbers = [graph.constants[name].reshape(-1).astype(np.int64) for name in node.inputs[1:] if name]
    if node.operator == "Split":
        count = len(node.outputs)
        sizes = given.get("split", numbers[0] if numbers else [-(-whole.shape[1] // count)] * count)
        if given.get("axis", 0) not in (1, -1) or len(sizes) != count:
            raise PolicyError(f"{graph.where}: {node} splits another axis than the features; export it again")
        return dict(zip(node.outputs, np.split(whole, np.cumsum(sizes)[:-1], axis=1), strict=True))
    starts, ends, axes = (
        given.get(name, numbers[place] if place < len(numbers) else [1])
        for place, name in enumerate(("starts", "ends", "axes"))
    )
    if list(axes) not in ([1], [-1]) or any(step != 1 for step in numbers[3:]):
        raise PolicyError(f"{graph.where}: {node} takes no plain part of the features; export it again")
    return {node.outputs[0]: whole[:, int(starts[0]) : int(ends[0])]}


def _list_constants(graph: Graph, node: Node) -> list[str]:
    return [name for name in node.inputs if name in graph.constants]
