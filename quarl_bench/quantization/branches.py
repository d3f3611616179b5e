"""Branches: parts of a flat input that pass layers of their own before one chain reads them side by side.

The layers of all branches stand in front of those of the chain, in the order of the parts, so that whatever lists,
rounds or stores layers finds them where it looks.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError

Batch = TypeVar("Batch", torch.Tensor, NDArray[Any])


@dataclass(frozen=True)
class Branch:
    """A part of the input, images channel-first, and how many layers it passes alone; of none it is read as it is."""

    shape: tuple[int, ...]
    layers: int = 0

    @property
    def width(self) -> int:
        """Values of the input that it takes."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Place:
    """Where a branch stands: its values in the input, and the indices of its layers."""

    branch: Branch
    values: slice
    layers: range


def list_places(branches: Sequence[Branch]) -> Iterator[Place]:
    """Every branch with its place, in order."""
    begin = first = 0
    for branch in branches:
        yield Place(branch, slice(begin, begin + branch.width), range(first, first + branch.layers))
        begin, first = begin + branch.width, first + branch.layers


def find_stem(branches: Sequence[Branch]) -> int:
    """Index of the first layer behind the branches: of a chain without any 0."""
    return sum(branch.layers for branch in branches)


def list_widths(branches: Sequence[Branch], layers: Sequence[Any]) -> list[int]:
    """How many values each branch hands to the chain; `layers` are floats or integers."""
    return [
        len(layers[place.layers[-1]].bias) if place.layers else place.branch.width for place in list_places(branches)
    ]


def find_starts(branches: Sequence[Branch], layers: Sequence[Any]) -> dict[int, tuple[int, ...]]:
    """What the layers read that do not read the one in front of them, by index: a part, or all of them joined."""
    if not branches:
        return {}
    starts = {place.layers[0]: place.branch.shape for place in list_places(branches) if place.layers}
    return starts | {find_stem(branches): (sum(list_widths(branches, layers)),)}


def join(branches: Sequence[Branch], x: Batch, run: Callable[[int, Batch], Batch]) -> Batch:
    """What the chain reads, (n, width), of inputs (n, total); `run(index, y)` is what layer `index` makes of y."""
    parts = []
    for place in list_places(branches):
        y = x[:, place.values].reshape(len(x), *place.branch.shape)
        for index in place.layers:
            y = run(index, y)
        parts.append(y.reshape(len(x), -1))
    return torch.cat(parts, dim=1) if isinstance(x, torch.Tensor) else np.concatenate(parts, axis=1)


def check_branches(branches: Sequence[Branch], layers: Sequence[Any], input_shape: tuple[int, ...]) -> None:
    """PolicyError for branches that do not take the input apart, or whose layers cannot follow one another."""
    total = sum(branch.width for branch in branches)
    if input_shape != (total,) or any(min((1, *branch.shape)) < 1 or branch.layers < 0 for branch in branches):
        shapes = ", ".join(str(branch.shape) for branch in branches)[:80]
        raise PolicyError(f"branches of {shapes} for an input of {input_shape}, which they do not take apart")
    if not find_stem(branches):
        raise PolicyError("branches without layers are one vector; leave them out")
    if find_stem(branches) >= len(layers):
        raise PolicyError(f"branches of {find_stem(branches)} layers in a net of {len(layers)}: none is behind them")
    for place in list_places(branches):
        shape = place.branch.shape
        for index in place.layers:
            shape = layers[index].output_shape(shape)
        if place.layers and len(shape) > 1:
            raise PolicyError(f"layer {place.layers[-1]}: a branch ends in a Linear layer, not in a convolution")
