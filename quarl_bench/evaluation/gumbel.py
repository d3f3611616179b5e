"""Noise that turns logits into sampled actions: argmax(logits + Gumbel noise) is a draw from their softmax."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

STREAM = 7919  # keeps the noise apart from whatever else an environment seed seeds


class GumbelNoise:
    """A stream per episode, from its environment seed alone: common random numbers for all schemes of a cell."""

    def __init__(self, seeds: Sequence[int], actions: int) -> None:
        self._streams = [np.random.default_rng([STREAM, int(seed)]) for seed in seeds]
        self._actions = actions

    def draw(self, active: NDArray[np.intp]) -> NDArray[np.float64]:
        """Gumbel noise (n, actions) for the next step of the episodes `active` (n,)."""
        return np.stack([self._streams[index].gumbel(size=self._actions) for index in active])
