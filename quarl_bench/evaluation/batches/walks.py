"""Episodes of MuJoCo's walkers, whose bodies step side by side; the starts are those of a scalar environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.classic_control import Bools, Rewards
from quarl_bench.environments.locomotion import Bodies, Walker
from quarl_bench.environments.registry import ENVIRONMENTS, Environment


class WalkEpisodes:
    """One walk per seed."""

    def __init__(self, environment: Environment, seeds: Sequence[int], walker: Walker) -> None:
        self._task, self._seeds = environment, seeds
        self._made = ENVIRONMENTS.borrow(environment, 1)
        ((self._scalar, self._limit),) = self._made
        self._bodies = Bodies(self._scalar.unwrapped, walker, len(seeds))

    def reset(self) -> NDArray[Any]:
        """Put every body where Gymnasium's `reset(seed=seed)` does; the first observations."""
        observations = []
        for index, seed in enumerate(self._seeds):
            observations.append(self._scalar.reset(seed=int(seed))[0])
            self._bodies.keep(index)
        self._steps = 0
        return np.stack(observations)

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        """Step the walks `active`, those that ran before and have not ended, in order."""
        observations, rewards, done = self._bodies.advance(active, actions)
        self._steps += 1
        return observations, rewards, done | (self._steps >= self._limit)

    def close(self) -> None:
        """Give the scalar environment back."""
        ENVIRONMENTS.give_back(self._task, self._made)
        self._made = []
