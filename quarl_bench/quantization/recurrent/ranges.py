"""From what a recurrent cell does in the states that its policy visits to the formats of its integers."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from quarl_bench.quantization.activations import MARGIN_STEP, Activation
from quarl_bench.quantization.affine import IntegerFormat, choose_affine
from quarl_bench.quantization.calibration.formats import Range
from quarl_bench.quantization.calibration.observers import observe
from quarl_bench.quantization.parameters import ActivationFormat, has_margin
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from quarl_bench.quantization.recurrent.quantized import STATE_FORMAT, Lookup, QuantizedCell
from quarl_bench.quantization.scheme import Scheme

TABLE_BITS = 10  # of what a table of a cell reads
HEADROOM = 2.0  # of sums and states over what was visited: 16 bits have room, and a state that saturates forgets


@dataclass(frozen=True)
class CellRanges:
    """Largest magnitudes of sums and state, and the ranges of what the tables read and of the hidden state."""

    sums: float
    gates: Range
    candidate: Range
    state: float
    hidden: Range


def observe_cell(
    cell: Cell, x: torch.Tensor, h: torch.Tensor, state: list[torch.Tensor], scheme: Scheme
) -> tuple[torch.Tensor, CellRanges]:
    """The hidden state behind a step, and the ranges of all that is computed in it."""
    gates, candidate = cell.find_sums(x, h)
    hidden, behind = cell.advance(x, h, state)
    both = torch.cat([hidden, state[0]]).numpy()
    seen = observe(both, scheme)
    ranges = CellRanges(
        sums=_reach(x, h, candidate, *gates),
        gates=_span(*gates),
        candidate=_span(candidate),
        state=_reach(behind[-1], state[-1]),
        hidden=seen,
    )
    return hidden, ranges


def choose_cell(cell: Cell, ranges: CellRanges, hidden: ActivationFormat) -> QuantizedCell:
    """The integers of a cell whose hidden state has the format `hidden`."""
    span = Range(-HEADROOM * ranges.state, HEADROOM * ranges.state)
    squash = choose_lookup(Activation.TANH, span) if cell.kind is CellKind.LSTM else None
    return QuantizedCell(
        kind=cell.kind,
        place=cell.place,
        sums=_cover(ranges.sums),
        sigmoid=choose_lookup(Activation.SIGMOID, ranges.gates),
        candidate=choose_lookup(Activation.TANH, ranges.candidate),
        squash=squash,
        cell=_cover(ranges.state),
        hidden=hidden,
    )


def choose_lookup(activation: Activation, span: Range) -> Lookup:
    """A table of a sigmoid or a tanh, whose ends lie within a step of `TABLE_BITS` bits of its limits."""
    rest = 2.0**-TABLE_BITS
    bound = float(np.arctanh(1 - rest)) if activation is Activation.TANH else float(np.log(1 / rest - 1))
    low, high = max(span.low, -bound), min(span.high, bound)
    affine = choose_affine(low, high, IntegerFormat(TABLE_BITS), symmetric=False, endpoint=True)
    front = ActivationFormat(affine.format, np.float32(affine.scale), int(affine.zero_point))
    behind = ActivationFormat(STATE_FORMAT, np.float32(2.0 ** (1 - STATE_FORMAT.bit_width)), 0)
    while not has_margin(activation, front, behind):
        behind = replace(behind, scale=behind.scale * MARGIN_STEP)
    return Lookup(activation, front, behind)


def _cover(largest: float) -> ActivationFormat:
    reach = HEADROOM * largest
    affine = choose_affine(-reach, reach, STATE_FORMAT, symmetric=True, endpoint=True)
    return ActivationFormat(STATE_FORMAT, np.float32(affine.scale), 0)


def _reach(*parts: torch.Tensor) -> float:
    return max(float(part.abs().max()) for part in parts)


def _span(*parts: torch.Tensor) -> Range:
    return Range(min(float(part.min()) for part in parts), max(float(part.max()) for part in parts))
