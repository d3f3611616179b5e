"""Noise of an episode's own: it depends on the environment seed and the step alone.

So every policy, scheme and size of noise sees the same numbers, and differences are not of the noise.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

GUMBEL, INPUT = 7919, 6287  # keep a stream apart from whatever else an environment seed seeds


class GumbelNoise:
    """What turns logits into sampled actions: argmax(logits + Gumbel noise) is a draw from their softmax."""

    def __init__(self, seeds: Sequence[int], logits: int) -> None:
        self._streams = [np.random.default_rng([GUMBEL, int(seed)]) for seed in seeds]
        self._logits = logits

    def draw(self, active: NDArray[np.intp]) -> NDArray[np.float64]:
        """Gumbel noise (n, logits) for the next step of the episodes `active` (n,)."""
        return np.stack([self._streams[index].gumbel(size=self._logits) for index in active])


class InputNoise:
    """Normal noise on what the net is given: sigma * N(0, 1) behind the observation's normalization and its clip."""

    def __init__(self, seeds: Sequence[int], features: int, sigma: float) -> None:
        self._streams = [np.random.default_rng([INPUT, int(seed)]) for seed in seeds]
        self._features, self._sigma = features, np.float32(sigma)

    def draw(self, active: NDArray[np.intp]) -> NDArray[np.float32]:
        """Normal noise (n, features) for the next step of the episodes `active` (n,)."""
        drawn = [self._streams[index].standard_normal(self._features, dtype=np.float32) for index in active]
        noise: NDArray[np.float32] = self._sigma * np.stack(drawn)
        return noise
