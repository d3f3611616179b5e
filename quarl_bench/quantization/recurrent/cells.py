"""Recurrent cells: an LSTM or a GRU between the layers of a net.

A cell is two layers and what joins them. The first maps the cell's input to its gates, the second its hidden state, so
that whatever lists, rounds or stores layers finds them where it looks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError

State = tuple[
    NDArray[Any], ...
]  # arrays (n, width) in the order of the cells; of an LSTM the hidden one, then the cell
NO_STATE: State = ()


class CellKind(StrEnum):
    """What joins the gates; their order is torch's."""

    LSTM = "lstm"  # input, forget, candidate, output
    GRU = "gru"  # reset, update, candidate


GATES = {CellKind.LSTM: 4, CellKind.GRU: 3}
PARTS = {CellKind.LSTM: 2, CellKind.GRU: 1}  # arrays of the state in floats


@dataclass(frozen=True)
class Cell:
    """`layers[place]` maps the input to the gates, `layers[place + 1]` the hidden state."""

    kind: CellKind
    place: int

    def find_sums(self, x: torch.Tensor, h: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """What the sigmoids read, in the order of the gates, and what the candidate's tanh reads."""
        if self.kind is CellKind.LSTM:
            enter, forget, candidate, leave = (x + h).chunk(4, dim=1)
            return (enter, forget, leave), candidate
        (x_reset, x_update, x_new), (h_reset, h_update, h_new) = x.chunk(3, dim=1), h.chunk(3, dim=1)
        reset = x_reset + h_reset
        return (reset, x_update + h_update), x_new + torch.sigmoid(reset) * h_new

    def advance(
        self, x: torch.Tensor, h: torch.Tensor, state: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Hidden state (n, width) and state behind a step, from the gates' two parts (n, gates * width).

        torch.nn.LSTM: c' = f * c + i * g, h' = o * tanh(c'). torch.nn.GRU: n = tanh(x_n + r * h_n),
        h' = (1 - z) * n + z * h.
        """
        sums, candidate = self.find_sums(x, h)
        new = torch.tanh(candidate)
        if self.kind is CellKind.LSTM:
            enter, forget, leave = (torch.sigmoid(part) for part in sums)
            cell = forget * state[1] + enter * new
            hidden = leave * torch.tanh(cell)
            return hidden, (hidden, cell)
        update = torch.sigmoid(sums[1])
        hidden = (1 - update) * new + update * state[0]
        return hidden, (hidden,)


class Affine(Protocol):
    """A layer, in floats or in integers."""

    @property
    def weight(self) -> NDArray[Any]:
        """Of an affine map (outputs, inputs, ...)."""


def find_cell(cells: Sequence[Cell], index: int) -> Cell | None:
    """The cell whose first layer has this index."""
    return next((cell for cell in cells if cell.place == index), None)


def list_steps(layers: Sequence[Affine], cells: Sequence[Cell], begin: int = 0) -> Iterator[tuple[int, Cell | None]]:
    """Index of every layer that reads what stands before it, with the cell that it begins; second layers left out.

    `begin` is the first layer behind those of branches.
    """
    skipped = {cell.place + 1 for cell in cells}
    return ((index, find_cell(cells, index)) for index in range(begin, len(layers)) if index not in skipped)


def find_width(layers: Sequence[Affine], cell: Cell) -> int:
    """How many units a cell has."""
    return int(layers[cell.place + 1].weight.shape[1])


def check_cell(cell: Cell, layers: Sequence[Any], previous: int) -> None:
    """PolicyError for layers that are not a cell's, or where its place lies before `previous`."""
    where = f"{cell.kind} at layer {cell.place}"
    if not previous <= cell.place < len(layers) - 1:
        raise PolicyError(f"{where}: a cell is two layers, and those of {len(layers)} do not hold it")
    first, second = layers[cell.place].weight, layers[cell.place + 1].weight
    if first.ndim != 2 or second.ndim != 2 or not len(first) == len(second) == GATES[cell.kind] * second.shape[1]:
        raise PolicyError(f"{where}: weights {first.shape} and {second.shape} are not its {GATES[cell.kind]} gates'")
    if any(
        layer.activation != "none" or getattr(layer, "norm", None) is not None for layer in layers[cell.place :][:2]
    ):
        raise PolicyError(f"{where}: an activation or a normalization follows its gates' sums, which none does")


def take(state: State, rows: NDArray[Any]) -> State:
    """The state of some rows of a batch."""
    return tuple(part[rows] for part in state)


def start_state(layers: Sequence[Affine], cells: Sequence[Cell], count: int) -> State:
    """Zeros, float32: the state of `count` episodes that begin."""
    return tuple(
        np.zeros((count, find_width(layers, cell)), np.float32) for cell in cells for _ in range(PARTS[cell.kind])
    )


def split_state(state: Sequence[Any], cells: Sequence[Cell], parts: dict[CellKind, int]) -> dict[int, Sequence[Any]]:
    """The arrays of a state by the place of their cell; PolicyError where it is another net's."""
    if len(state) != sum(parts[cell.kind] for cell in cells):
        raise PolicyError(f"a state of {len(state)} arrays for {len(cells)} cells; begin with initial_state()")
    found, begin = {}, 0
    for cell in cells:
        found[cell.place] = state[begin : begin + parts[cell.kind]]
        begin += parts[cell.kind]
    return found
