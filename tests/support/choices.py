"""Environments of every kind of discrete action, with masks and without."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

OBSERVED = spaces.Box(-2, 2, (4,), np.float32)
ACTIONS: dict[str, Any] = {
    "index": spaces.Discrete(5),
    "indices": spaces.MultiDiscrete([3, 2, 4]),
    "bits": spaces.MultiBinary(3),
}


def count_entries(actions: Any) -> list[int]:
    """The size of each choice."""
    if isinstance(actions, spaces.Discrete):
        return [int(actions.n)]
    if isinstance(actions, spaces.MultiDiscrete):
        return [int(size) for size in actions.nvec.reshape(-1)]
    return [2] * int(np.prod(actions.shape))


def draw_masks(rng: np.random.Generator, count: int, sizes: Sequence[int]) -> NDArray[np.bool_]:
    """Random masks (count, sum of sizes), each of which leaves something of every choice."""
    parts = []
    for size in sizes:
        mask = rng.random((count, size)) < 0.5
        mask[np.arange(count), rng.integers(size, size=count)] = True
        parts.append(mask)
    return np.concatenate(parts, axis=1)


class Chooser(gymnasium.Env[Any, Any]):
    """Twenty steps of random observations; refuses an action outside its space. The reward sums up the action."""

    max_episode_steps = 20

    def __init__(self, actions: Any) -> None:
        self.observation_space, self.action_space = OBSERVED, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return self.show(), float(np.dot(np.ravel(action), 1 + np.arange(np.size(action)))), False, False, {}

    def show(self) -> Any:
        return self.np_random.uniform(-2, 2, 4).astype(np.float32)


class Masked(Chooser):
    """The same, which refuses what its mask forbids too; the mask is random, and not to be seen in the observation."""

    def show(self) -> Any:
        sizes = count_entries(self.action_space)
        self.masks = np.split(draw_masks(self.np_random, 1, sizes)[0], np.cumsum(sizes)[:-1])
        return super().show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for mask, chosen in zip(self.masks, np.ravel(action), strict=True):
            assert mask[int(chosen)], f"{action} is forbidden by {self.masks}"
        return super().step(action)


class ByMethod(Masked):
    """Its masks as sb3-contrib asks for them."""

    def action_masks(self) -> Any:
        return np.concatenate(self.masks)


class ByInfo(Masked):
    """Its masks in the info."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        return observation, info | {"action_mask": tuple(mask.astype(np.int8) for mask in self.masks)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        *rest, info = super().step(action)
        return *rest, info | {"action_mask": tuple(mask.astype(np.int8) for mask in self.masks)}  # type: ignore[return-value]
