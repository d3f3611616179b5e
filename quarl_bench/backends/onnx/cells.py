"""Recurrent cells as ONNX operators: an LSTM or a GRU, in integers exactly as the golden model's.

The elementwise part of an integer cell is computed on float32 numbers that are whole. A product of two integers of 16
bits is then rounded to 24 bits once, as the golden model rounds it in front of a scale; sums and tables are exact.
"""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.recurrent.cells import GATES, PARTS, Cell, CellKind, find_width
from quarl_bench.quantization.recurrent.quantized import STATE_FORMAT, QuantizedCell
from quarl_bench.quantization.requantize import effective_scale

ELEMENTWISE = {"Identity", "Mul", "Round", "Split", "Sub"}  # what an integer cell needs beside the operators of layers
ONE = np.float32(1)


class Graph(Protocol):
    """The file under construction."""

    last: str

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One node; its output becomes `last`."""

    def add_all(self, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> list[str]:
        """One node of several outputs."""

    def add_constant(self, name: str, values: NDArray[Any] | np.generic) -> str:
        """Add an initializer; its name is returned."""

    def add_state(self, name: str, dtype: type[np.generic], width: int) -> str:
        """An input for a part of the state; `return_state` names its value behind the step."""

    def return_state(self, name: str, value: str) -> None:
        """What a part of the state becomes."""

    def cast(self, value: str, dtype: type[np.generic], name: str) -> str:
        """The same numbers in another type."""

    def add_products(self, name: str, layer: QuantizedLayer, source: ActivationFormat) -> str:
        """Sums of 32 bits of a fully connected layer."""


class IntegerCell:
    """The nodes of one integer cell; every value between them is a whole number in float32."""

    def __init__(self, graph: Graph, net: IntegerNet, cell: QuantizedCell, name: str) -> None:
        self._graph, self._net, self._cell, self._name = graph, net, cell, name
        self._low, self._high = (
            graph.add_constant(f"{name}.{end}", np.float32(value))
            for end, value in (("lowest", STATE_FORMAT.minimum), ("highest", STATE_FORMAT.maximum))
        )
        self._tables = {part: self._declare_table(part) for part in cell.tables}
        self._nodes = 0

    def build(self) -> None:
        """The step: it reads the last value and the state; its hidden state is the last value behind it."""
        graph, cell, name = self._graph, self._cell, self._name
        width, place = find_width(self._net.layers, cell), cell.place
        states = (f"{name}.hidden", np.uint8), (f"{name}.cell", np.int16)
        before = graph.last
        hidden, memory = (graph.add_state(part, dtype, width) for part, dtype in states)
        x = self._sum(place, self._net.sources[place], before)
        h = self._sum(place + 1, cell.hidden, hidden)
        step = self._add_lstm if cell.kind is CellKind.LSTM else self._add_gru
        shown, scales, kept = step(x, h, graph.cast(memory, np.float32, f"{name}.cell.float"))
        ends = [limit - cell.hidden.zero_point for limit in (cell.hidden.format.minimum, cell.hidden.format.maximum)]
        steps = self._clip(self._rescale(shown, scales), *ends)
        moved = self._join("Add", steps, self._declare("hidden.zero_point", np.float32(cell.hidden.zero_point)))
        graph.return_state(states[1][0], graph.cast(kept, np.int16, f"{name}.cell.behind"))
        behind = graph.cast(moved, np.uint8, f"{name}.hidden.behind")
        graph.return_state(states[0][0], behind)
        graph.last = behind

    def _add_lstm(self, x: str, h: str, memory: str) -> tuple[str, str, str]:
        enter, forget, candidate, leave = self._split(self._saturate(self._join("Add", x, h)))
        taken = self._join("Mul", self._open(enter), self._look_up("candidate", "news", candidate))
        kept = self._mix(taken, self._join("Mul", self._open(forget), memory))
        return self._join("Mul", self._open(leave), self._look_up("squash", "squashed", kept)), "shown", kept

    def _add_gru(self, x: str, h: str, memory: str) -> tuple[str, str, str]:
        (x_reset, x_update, x_new), (h_reset, h_update, h_new) = self._split(x), self._split(h)
        reset = self._open(self._saturate(self._join("Add", x_reset, h_reset)))
        recalled = self._rescale(self._join("Mul", reset, h_new), "recalled")
        update = self._open(self._saturate(self._join("Add", x_update, h_update)))
        new = self._look_up("candidate", "news", self._saturate(self._join("Add", x_new, recalled)))
        whole = self._declare("whole", np.float32(self._cell.whole))
        taken = self._join("Mul", self._join("Sub", whole, update), new)
        kept = self._mix(taken, self._join("Mul", update, memory))
        return kept, "shown", kept

    def _sum(self, index: int, source: ActivationFormat, read: str) -> str:
        """Both layers' sums, of 16 bits."""
        layer, name, graph = self._net.layers[index], f"layers.{index}", self._graph
        graph.last = read
        graph.add_products(name, layer, source)
        sums = graph.cast(graph.last, np.float32, f"{name}.sum.float")
        scale = effective_scale(np.asarray(source.scale), layer.weight_scale, np.asarray(layer.output.scale))
        rounded = self._round(sums, graph.add_constant(f"{name}.rescale", scale))
        return self._clip(rounded, layer.lowest, layer.output.format.maximum)

    def _open(self, sums: str) -> str:
        return self._look_up("sigmoid", "gates", sums)

    def _look_up(self, part: str, scale: str, value: str) -> str:
        front = self._cell.tables[part].front
        low, high = (end - front.zero_point for end in (front.format.minimum, front.format.maximum))
        steps = self._clip(self._rescale(value, scale), low, high)
        places = self._join("Sub", steps, self._declare(f"{part}.lowest", np.float32(low)))
        index = self._graph.cast(places, np.int32, self._next())
        return self._graph.add("Gather", [self._tables[part], index], self._next(), axis=0)

    def _mix(self, taken: str, kept: str) -> str:
        return self._saturate(self._join("Add", self._rescale(taken, "taken"), self._rescale(kept, "kept")))

    def _rescale(self, value: str, name: str) -> str:
        scale = effective_scale(*map(np.asarray, self._cell.scales[name]))
        return self._round(value, self._declare(f"{name}.scale", scale))

    def _round(self, value: str, scale: str) -> str:
        return self._graph.add("Round", [self._join("Mul", value, scale)], self._next())

    def _saturate(self, value: str) -> str:
        return self._graph.add("Clip", [value, self._low, self._high], self._next())

    def _clip(self, value: str, low: int, high: int) -> str:
        name = self._next()
        ends = [
            self._graph.add_constant(f"{name}.{end}", np.float32(limit))
            for end, limit in (("lowest", low), ("highest", high))
        ]
        return self._graph.add("Clip", [value, *ends], name)

    def _join(self, operator: str, first: str, second: str) -> str:
        return self._graph.add(operator, [first, second], self._next())

    def _split(self, value: str) -> list[str]:
        count, name = GATES[self._cell.kind], self._next()
        return self._graph.add_all(
            "Split", [value], [f"{name}.{gate}" for gate in range(count)], axis=1, num_outputs=count
        )

    def _declare(self, name: str, value: NDArray[Any] | np.generic) -> str:
        return self._graph.add_constant(f"{self._next()}.{name}", value)

    def _declare_table(self, part: str) -> str:
        entries = self._cell.tables[part].table.astype(np.float32)
        return self._graph.add_constant(f"{self._name}.{part}.table", entries)

    def _next(self) -> str:
        self._nodes += 1
        return f"{self._name}.{self._nodes}"


def add_float_cell(graph: Graph, net: Net, cell: Cell, name: str) -> None:
    """The step of a float32 cell as torch.nn.LSTM and torch.nn.GRU define it; its hidden state is the last value."""
    width = find_width(net.layers, cell)
    parts = [f"{name}.{part}" for part in ("hidden", "cell")[: PARTS[cell.kind]]]
    before = graph.last
    state = [graph.add_state(part, np.float32, width) for part in parts]
    sums = []
    for index, read in ((cell.place, before), (cell.place + 1, state[0])):
        layer = net.layers[index]
        constants = [
            graph.add_constant(f"layers.{index}.{part}", value)
            for part, value in (("weight", layer.weight), ("bias", layer.bias))
        ]
        sums.append(graph.add("Gemm", [read, *constants], f"layers.{index}.sum", transB=1))
    join = {CellKind.LSTM: _join_lstm, CellKind.GRU: _join_gru}[cell.kind]
    behind = join(graph, name, sums, state)
    for part, value in zip(parts, behind, strict=True):
        graph.return_state(part, value)
    graph.last = behind[0]


def _join_lstm(graph: Graph, name: str, sums: list[str], state: list[str]) -> list[str]:
    gates = [f"{name}.{part}" for part in ("enter", "forget", "candidate", "leave")]
    graph.add("Add", sums, f"{name}.sums")
    graph.add_all("Split", [graph.last], gates, axis=1, num_outputs=len(gates))
    enter, forget, leave = (graph.add("Sigmoid", [gates[i]], f"{gates[i]}.open") for i in (0, 1, 3))
    new = graph.add("Tanh", [gates[2]], f"{name}.new")
    taken, kept = (
        graph.add("Mul", pair, f"{name}.{part}")
        for part, pair in (("taken", [enter, new]), ("kept", [forget, state[1]]))
    )
    cell = graph.add("Add", [kept, taken], f"{name}.cell.behind")
    squashed = graph.add("Tanh", [cell], f"{name}.squashed")
    return [graph.add("Mul", [leave, squashed], f"{name}.hidden.behind"), cell]


def _join_gru(graph: Graph, name: str, sums: list[str], state: list[str]) -> list[str]:
    gates = [[f"{name}.{side}.{part}" for part in ("reset", "update", "new")] for side in ("x", "h")]
    for side, names in zip(sums, gates, strict=True):
        graph.add_all("Split", [side], names, axis=1, num_outputs=len(names))
    reset, update = (
        graph.add("Sigmoid", [graph.add("Add", [gates[0][i], gates[1][i]], f"{name}.{part}")], f"{name}.{part}.open")
        for i, part in ((0, "reset"), (1, "update"))
    )
    recalled = graph.add("Mul", [reset, gates[1][2]], f"{name}.recalled")
    new = graph.add("Tanh", [graph.add("Add", [gates[0][2], recalled], f"{name}.sums")], f"{name}.new")
    rest = graph.add("Sub", [graph.add_constant(f"{name}.one", ONE), update], f"{name}.rest")
    taken, kept = (
        graph.add("Mul", pair, f"{name}.{part}")
        for part, pair in (("taken", [rest, new]), ("kept", [update, state[0]]))
    )
    return [graph.add("Add", [taken, kept], f"{name}.hidden.behind")]
