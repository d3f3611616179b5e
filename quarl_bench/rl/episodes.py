"""Batches of episodes that start from given seeds and end for good: no autoreset, no wrapper in the loop.

Both kinds play exactly the episodes of `gymnasium.make(id)` with `reset(seed=seed)`: the vectorised kind takes its
starts from a scalar environment, so that an episode does not depend on how many others run beside it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.rl.environments import Environment, make_environment

Bools = NDArray[np.bool_]
Rewards = NDArray[np.float64]


class Episodes(Protocol):
    """One episode per seed, played side by side."""

    def reset(self) -> NDArray[Any]:
        """First observations (seeds, ...)."""

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        """Step the episodes `active` (n,); their observations (n, ...), rewards (n,), and which have now ended."""

    def close(self) -> None:
        """Release the environments."""


def start_episodes(environment: Environment, seeds: Sequence[int]) -> Episodes:
    """Vectorised where Gymnasium has its own vector entry point with a settable state, else one by one."""
    spec = gymnasium.spec(environment.id)
    if spec.vector_entry_point is not None:
        return VectorEpisodes(environment, seeds)
    return SteppedEpisodes(environment, seeds)


class SteppedEpisodes:
    """A bare environment per seed."""

    def __init__(self, environment: Environment, seeds: Sequence[int]) -> None:
        made = [make_environment(environment) for _ in seeds]
        self._environments = [bare for bare, _ in made]
        self._limit = made[0][1]
        self._seeds = seeds
        self._steps = np.zeros(len(seeds), dtype=np.int64)
        self._discrete = isinstance(self._environments[0].action_space, gymnasium.spaces.Discrete)

    def reset(self) -> NDArray[Any]:
        pairs = zip(self._environments, self._seeds, strict=True)
        return np.stack([environment.reset(seed=int(seed))[0] for environment, seed in pairs])

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        choices = actions.tolist() if self._discrete else actions
        results = [self._environments[i].step(action) for i, action in zip(active, choices, strict=True)]
        observations, rewards, terminated, _, _ = zip(*results, strict=True)
        self._steps[active] += 1
        done = np.array(terminated, dtype=np.bool_) | (self._steps[active] >= self._limit)
        return np.stack(observations), np.array(rewards, dtype=np.float64), done

    def close(self) -> None:
        for environment in self._environments:
            environment.close()


class VectorEpisodes:
    """Gymnasium's own vectorised dynamics; ended episodes step on unread, because the batch cannot shrink."""

    def __init__(self, environment: Environment, seeds: Sequence[int]) -> None:
        scalar, _ = make_environment(environment)
        states = []
        for seed in seeds:
            scalar.reset(seed=int(seed))
            states.append(np.asarray(scalar.unwrapped.state, dtype=np.float64))  # type: ignore[attr-defined]
        scalar.close()
        self._starts = np.stack(states, axis=1)
        self._vector = gymnasium.make_vec(
            environment.id, num_envs=len(seeds), vectorization_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        )
        self._actions = np.zeros(len(seeds), dtype=np.int64)

    def reset(self) -> NDArray[Any]:
        self._vector.reset(seed=0)
        self._vector.unwrapped.state = self._starts.copy()  # type: ignore[attr-defined]
        return self._starts.T.astype(np.float32)

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        self._actions[active] = actions
        observations, rewards, terminated, truncated, _ = self._vector.step(self._actions)
        done = (terminated | truncated)[active]
        return np.asarray(observations)[active], np.asarray(rewards, dtype=np.float64)[active], done

    def close(self) -> None:
        self._vector.close()
