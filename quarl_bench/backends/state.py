"""The state of a recurrent policy at an artefact's ports: it stands behind the inputs, and behind the outputs.

So an artefact keeps nothing between two calls, golden pairs stand alone, and whatever runs models runs these. Of
integers, every cell's hidden state has a byte a unit, and its cell state two, the lower one first; of floats, numbers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.recurrent.cells import State, find_width

HIDDEN, CELL = np.dtype(np.int8), np.dtype("<i2")


def count_state(net: Net | IntegerNet) -> int:
    """Numbers of the port's type that the state takes; 0 where the net has none."""
    return pack_state(net, net.initial_state(1), np.dtype(np.int8)).shape[1] if net.recurrent else 0


def pack_state(net: Net | IntegerNet, state: State, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A state as rows (n, count) of a port: float32, or the bytes of integers, of the type `dtype` of a byte."""
    if isinstance(net, Net):
        return np.concatenate(state, axis=1)
    kinds = (HIDDEN, CELL) * len(net.cells)  # of integers from 0 to 255 the same bytes
    parts = [part.astype(kind).view(np.uint8).reshape(len(part), -1) for part, kind in zip(state, kinds, strict=True)]
    return np.asarray(np.concatenate(parts, axis=1).view(dtype))


def unpack_state(net: IntegerNet, rows: NDArray[Any]) -> State:
    """Inverse of `pack_state` for integers."""
    found: list[Integers] = []
    begin, content = 0, np.ascontiguousarray(rows).view(np.uint8)
    for cell in net.cells:
        for kind in (HIDDEN if cell.hidden.format.signed else np.dtype(np.uint8), CELL):
            size = find_width(net.layers, cell) * kind.itemsize
            part = np.ascontiguousarray(content[:, begin : begin + size])
            found.append(part.view(kind).astype(np.int64))
            begin += size
    return tuple(found)


def renumber_state(before: IntegerNet, after: IntegerNet, state: State) -> State:
    """A state of `before` as the same net has it in other integers; one in floats, which is no net's own, as it is."""
    if before is after or not all(part.dtype.kind == "i" for part in state):
        return state
    moves = [
        move
        for one, other in zip(before.cells, after.cells, strict=True)
        for move in (other.hidden.zero_point - one.hidden.zero_point, 0)
    ]
    return tuple(part + move for part, move in zip(state, moves, strict=True))
