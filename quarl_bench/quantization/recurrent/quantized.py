"""A recurrent cell on integers: what joins the gates of an LSTM or a GRU, exactly.

The two layers of a cell give sums of 16 bits on one scale. Sigmoid and tanh are tables of what is in front of them; the
cell's state has 16 bits, so that what changes slowly is not rounded away, and its hidden state, which layers read, as
many as every activation. A GRU's state is its hidden one, which is kept in 16 bits the same way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat, Integers
from quarl_bench.quantization.branches import Branch, find_stem, list_places
from quarl_bench.quantization.parameters import ActivationFormat, PartedFormat, QuantizedLayer, make_table
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from quarl_bench.quantization.requantize import RULES, Float32s, Requantization

STATE_BITS = 16  # of the gates' sums, of what a table gives, and of the cell's state
STATE_FORMAT = IntegerFormat(STATE_BITS)
ONE = np.float32(1)
Rescale = Callable[[Integers, np.float32, np.float32, np.float32], Integers]


def find_rule(requantization: Requantization) -> Rescale:
    """A rule of rounding for products within a cell, which have no thresholds."""
    rule = RULES[requantization]

    def rescale(value: Integers, *scales: np.float32) -> Integers:
        arrays: list[Float32s] = [np.asarray(scale, np.float32) for scale in scales]
        return rule(value, arrays[0], arrays[1], arrays[2])

    return rescale


@dataclass(frozen=True)
class Lookup:
    """A function as a table: what it reads is rounded to `front`; an entry is of the format `behind`."""

    activation: Activation
    front: ActivationFormat
    behind: ActivationFormat

    @cached_property
    def table(self) -> Integers:
        """The entry of every integer of `front`, from the lowest upwards."""
        return make_table(self.activation, self.front, self.behind)

    def find(self, steps: Integers) -> Integers:
        """The entries of numbers rounded to `front` whose zero point is not added yet."""
        low, high = self.front.format.minimum, self.front.format.maximum
        places = np.clip(steps + self.front.zero_point, low, high) - low
        return np.asarray(self.table[places])


@dataclass(frozen=True)
class QuantizedCell(Cell):
    """`sums` is the format of both layers' outputs; the zero point of everything of 16 bits is 0."""

    sums: ActivationFormat
    sigmoid: Lookup
    candidate: Lookup
    squash: Lookup | None  # the tanh of an LSTM's state
    cell: ActivationFormat
    hidden: ActivationFormat

    def step(self, x: Integers, h: Integers, cell: Integers, rescale: Rescale) -> tuple[Integers, Integers]:
        """Hidden state and cell state (n, width) behind a step, from the gates' sums (n, gates * width)."""
        if self.kind is CellKind.LSTM:
            enter, forget, candidate, leave = np.split(_saturate(x + h), 4, axis=1)
            taken = self._open(enter, rescale) * self._look_up("candidate", "news", candidate, rescale)
            cell = self._mix(taken, self._open(forget, rescale) * cell, rescale)
            shown = self._open(leave, rescale) * self._look_up("squash", "squashed", cell, rescale)
            return self._show(shown, rescale), cell
        (x_reset, x_update, x_new), (h_reset, h_update, h_new) = np.split(x, 3, axis=1), np.split(h, 3, axis=1)
        recalled = rescale(self._open(_saturate(x_reset + h_reset), rescale) * h_new, *self.scales["recalled"])
        update = self._open(_saturate(x_update + h_update), rescale)
        new = self._look_up("candidate", "news", _saturate(x_new + recalled), rescale)
        cell = self._mix((self.whole - update) * new, update * cell, rescale)
        return self._show(cell, rescale), cell

    @cached_property
    def tables(self) -> dict[str, Lookup]:
        """Its tables, by what they are of."""
        found = {"sigmoid": self.sigmoid, "candidate": self.candidate}
        return found if self.squash is None else found | {"squash": self.squash}

    @cached_property
    def scales(self) -> dict[str, tuple[np.float32, np.float32, np.float32]]:
        """Every product that is rounded in a step, by name: the scales of its two factors, and of what it becomes."""
        gate, new, state, sums = (
            one.scale for one in (self.sigmoid.behind, self.candidate.behind, self.cell, self.sums)
        )
        found = {
            "gates": (sums, ONE, self.sigmoid.front.scale),
            "news": (sums, ONE, self.candidate.front.scale),
            "taken": (gate, new, state),
            "kept": (gate, state, state),
        }
        if self.squash is None:
            return found | {"recalled": (gate, sums, sums), "shown": (state, ONE, self.hidden.scale)}
        squashed = {"squashed": (state, ONE, self.squash.front.scale)}
        return found | squashed | {"shown": (gate, self.squash.behind.scale, self.hidden.scale)}

    @property
    def whole(self) -> int:
        """The integer of a gate that is open altogether: 1 / scale."""
        return min(int(np.rint(ONE / self.sigmoid.behind.scale)), STATE_FORMAT.maximum)

    def _open(self, sums: Integers, rescale: Rescale) -> Integers:
        return self._look_up("sigmoid", "gates", sums, rescale)

    def _look_up(self, table: str, scale: str, q: Integers, rescale: Rescale) -> Integers:
        return self.tables[table].find(rescale(q, *self.scales[scale]))

    def _mix(self, taken: Integers, kept: Integers, rescale: Rescale) -> Integers:
        return _saturate(rescale(taken, *self.scales["taken"]) + rescale(kept, *self.scales["kept"]))

    def _show(self, value: Integers, rescale: Rescale) -> Integers:
        steps = rescale(value, *self.scales["shown"]) + self.hidden.zero_point
        return np.clip(steps, self.hidden.format.minimum, self.hidden.format.maximum)


def _saturate(value: Integers) -> Integers:
    return np.clip(value, STATE_FORMAT.minimum, STATE_FORMAT.maximum)


def list_formats(
    source: ActivationFormat,
    layers: Sequence[QuantizedLayer],
    cells: Sequence[QuantizedCell],
    branches: Sequence[Branch] = (),
) -> tuple[ActivationFormat, ...]:
    """What each layer reads, and last what the net returns; `source` is the format of its input."""
    found = [source, *(layer.result for layer in layers)]
    if isinstance(source, PartedFormat):
        for place, part in zip(list_places(branches), source.parts, strict=True):
            if place.layers:
                found[place.layers[0]] = part
        found[find_stem(branches)] = source.joined
    for cell in cells:
        found[cell.place + 1 : cell.place + 3] = [cell.hidden, cell.hidden]
    return tuple(found)
