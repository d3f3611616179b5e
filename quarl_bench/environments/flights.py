"""PyFlyt's flights to one waypoint, as a policy sees them and as they are scored."""

import contextlib
import io
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.drone import Drone, can_fly, postpone
from quarl_bench.environments.wrappers import STDOUT, silence


class Flight(gymnasium.Wrapper[Any, Any, Any, Any]):
    """PyFlyt's flight to one waypoint: observations in a vector, an end at the target, silence.

    Observation (24,): attitude, velocities and position, the last action, motors, and the target in the body's frame.
    The reward is 1 where the target is reached, so that a return is a success; with `shaped` it is PyFlyt's own, which
    can be learned from.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], *, shaped: bool) -> None:
        super().__init__(environment)
        spaces: Any = environment.observation_space
        size = spaces["attitude"].shape[0] + spaces["target_deltas"].feature_space.shape[0]
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        bounds: Any = environment.action_space
        self.action_space = gymnasium.spaces.Box(bounds.low.astype(np.float32), bounds.high.astype(np.float32))
        self._shaped = shaped
        self._fast = can_fly(environment.unwrapped)
        self._drone: Drone | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A flight as PyFlyt begins it, and without a word."""
        if self._drone is not None:
            return self._drone.begin(seed)
        task: Any = self.env.unwrapped
        # Bullet prints from C when a flight begins, and PyFlyt from Python.
        with silence(STDOUT), contextlib.redirect_stdout(io.StringIO()):
            if not self._fast:
                observation, info = self.env.reset(seed=seed, options=options)
                return _flatten(observation), info
            with postpone(task):
                self.env.reset(seed=seed, options=options)
        self._drone = Drone(task)
        return self._drone.settle()

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """The target ends an episode: there is nothing behind it to look forward to."""
        command = np.asarray(action, dtype=np.float64)
        if self._drone is not None:
            observation, gained, terminated, truncated, info = self._drone.take_step(command)
        else:
            seen, given, terminated, truncated, info = self.env.step(command)
            observation, gained = _flatten(seen), float(given)
        reached = bool(info["env_complete"])
        gained = gained if self._shaped else float(reached)
        return observation, gained, terminated or reached, truncated and not reached, info


def _flatten(observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    row: NDArray[np.float32] = np.concatenate(
        [observation["attitude"], observation["target_deltas"][0]], dtype=np.float32
    )
    return row
