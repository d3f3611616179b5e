"""Running mean and variance of the observations, per seed; observations are stored raw and normalized when used."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.policies.observation import Normalization

CLIP = 10.0
EPSILON = 1e-8


class RunningStatistics:
    """Of everything a seed has acted on; with `active` False observations stay as they are."""

    def __init__(self, seeds: int, width: int, *, active: bool) -> None:
        self.active, self.count = active, 0
        self.mean, self.squares = np.zeros((2, seeds, width))
        self._tensors: tuple[torch.Tensor, torch.Tensor] | None = None

    @classmethod
    def of(cls, frozen: Normalization) -> Self:
        """The statistics of one seed that `export` has frozen."""
        statistics = cls(1, len(frozen.mean), active=True)
        statistics.count, statistics.mean, statistics.squares = (
            1,
            frozen.mean[None].copy(),
            frozen.variance[None].copy(),
        )
        return statistics

    @property
    def variance(self) -> NDArray[np.float64]:
        """Of the population, (seeds, width); 1 before anything was seen."""
        return self.squares / self.count if self.count else np.ones_like(self.squares)

    def update(self, observations: NDArray[Any]) -> None:
        """Take in one observation (seeds, width) of every seed (Welford's update)."""
        self.count += 1
        before = observations - self.mean
        self.mean += before / self.count
        self.squares += before * (observations - self.mean)
        self._tensors = None

    def normalize(self, observations: torch.Tensor) -> torch.Tensor:
        """Observations (seeds, n, width) by the statistics of now, as `export` will, but in float32."""
        if not self.active:
            return observations
        if self._tensors is None:
            inverse = 1 / np.sqrt(self.variance + EPSILON)
            self._tensors = _to_tensor(self.mean), _to_tensor(inverse)
        mean, inverse_sd = self._tensors
        return ((observations - mean) * inverse_sd).clamp_(-CLIP, CLIP)

    def export(self, seed: int) -> Normalization | None:
        """The statistics of one seed, frozen."""
        if not self.active:
            return None
        return Normalization(self.mean[seed].copy(), self.variance[seed].copy(), CLIP, EPSILON)

    def state(self) -> dict[str, Any]:
        """Count, mean and sum of squares as a checkpoint keeps them; the tensors share memory with the statistics."""
        return {"count": self.count, "mean": torch.from_numpy(self.mean), "squares": torch.from_numpy(self.squares)}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the numbers that `state` gave, as copies."""
        self.count, self._tensors = int(state["count"]), None
        self.mean, self.squares = state["mean"].numpy().copy(), state["squares"].numpy().copy()


def _to_tensor(values: NDArray[np.float64]) -> torch.Tensor:
    return torch.from_numpy(values[:, None].astype(np.float32))
