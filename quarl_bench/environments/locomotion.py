"""Gymnasium's MuJoCo walkers (v4) on a batch of episodes: bodies step one after the other, all else is arrays.

Every bit of an observation, a reward and an end is that of Gymnasium's classes: of each episode all is kept that
MuJoCo's next step depends on, its warm start too, and sums keep Gymnasium's order. All of them are stepped in one
`MjData`, which stays in the cache. Humanoid is left to Gymnasium: its physics takes so long that nothing else counts.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.classic_control import Bools, Rewards, Weak
from quarl_bench.environments.stopwatch import stop_watch

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Walker:
    """One class of walkers, with the numbers that Gymnasium documents for its version 4."""

    effort: float  # what the sum of squared actions costs
    hidden: int = 1  # so many of the first positions are not observed
    fastest: float = math.inf  # velocities are observed up to here
    stands: Callable[[Floats, Floats], Bools] | None = None  # of positions and velocities (n, ...); None: cannot fall
    body: str = ""  # whose place in the world is rewarded to move; else the first position is


def _hopper_stands(positions: Floats, velocities: Floats) -> Bools:
    height, angle = positions[:, 1], positions[:, 2]
    others = np.abs(np.concatenate((positions, velocities), axis=1)[:, 2:])
    stands: Bools = (height > 0.7) & (np.abs(angle) < 0.2) & (others < 100.0).all(axis=1)
    return stands


def _walker2d_stands(positions: Floats, velocities: Floats) -> Bools:  # noqa: ARG001
    height, angle = positions[:, 1], positions[:, 2]
    stands: Bools = (height > 0.8) & (height < 2.0) & (np.abs(angle) < 1.0)
    return stands


def _ant_stands(positions: Floats, velocities: Floats) -> Bools:
    height = positions[:, 2]
    finite = np.isfinite(positions).all(axis=1) & np.isfinite(velocities).all(axis=1)
    stands: Bools = finite & (height >= 0.2) & (height <= 1.0)
    return stands


# By the entry point that Gymnasium registers: a user's class of the same id is another one.
WALKERS = {
    "gymnasium.envs.mujoco.half_cheetah_v4:HalfCheetahEnv": Walker(0.1),
    "gymnasium.envs.mujoco.hopper_v4:HopperEnv": Walker(1e-3, fastest=10.0, stands=_hopper_stands),
    "gymnasium.envs.mujoco.walker2d_v4:Walker2dEnv": Walker(1e-3, fastest=10.0, stands=_walker2d_stands),
    "gymnasium.envs.mujoco.ant_v4:AntEnv": Walker(0.5, hidden=2, stands=_ant_stands, body="torso"),
}


def find_walker(id_: str) -> Walker | None:
    """The walker that Gymnasium registers under this id with its own settings; None for anything else."""
    spec = gymnasium.registry.get(id_)
    if spec is None or spec.kwargs or spec.additional_wrappers or not isinstance(spec.entry_point, str):
        return None
    return WALKERS.get(spec.entry_point)


class Bodies:
    """Bodies that take turns in the `MjData` of `environment`, Gymnasium's, which is nobody else's meanwhile."""

    def __init__(self, environment: Any, walker: Walker, count: int) -> None:
        mujoco = importlib.import_module("mujoco")
        self._walker, self._model, self._data = walker, environment.model, environment.data
        self._skip, self._seconds = environment.frame_skip, environment.dt
        self._step, self._read, self._write = mujoco.mj_step, mujoco.mj_getState, mujoco.mj_setState
        parts = mujoco.mjtState
        self._whole = int(parts.mjSTATE_INTEGRATION)
        self._positions, self._velocities, self._controls = (
            self._find(mujoco.mj_stateSize, int(part))
            for part in (parts.mjSTATE_QPOS, parts.mjSTATE_QVEL, parts.mjSTATE_CTRL)
        )
        self._states = np.empty((count, mujoco.mj_stateSize(self._model, self._whole)))
        self._rows = list(self._states)
        self._place = (self._data.body(walker.body).xpos if walker.body else self._data.qpos)[:1]
        self._places = np.empty(count)

    def keep(self, index: int) -> None:
        """The environment's present state is that of this body."""
        self._read(self._model, self._data, self._rows[index], self._whole)
        self._places[index] = self._place[0]

    def advance(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[Floats, Rewards, Bools]:
        """Step the bodies `active` (n,): observations (n, width), rewards (n,), and which have fallen."""
        step, read, write = self._step, self._read, self._write
        model, data, skip, whole, place = self._model, self._data, self._skip, self._whole, self._place
        self._states[active, self._controls] = actions
        places = []
        with stop_watch():
            for index in active.tolist():
                state = self._rows[index]
                write(model, data, state, whole)
                step(model, data, skip)
                read(model, data, state, whole)
                places.append(place[0])
        behind = np.array(places)
        speeds = (behind - self._places[active]) / self._seconds
        self._places[active] = behind
        positions, velocities = self._states[active, self._positions], self._states[active, self._velocities]
        rewards, fallen = self._judge(speeds, actions, positions, velocities)
        return self._observe(positions, velocities), rewards, fallen

    def _find(self, measure: Callable[[Any, int], int], part: int) -> slice:
        """Where a part of the state, one bit of those that name it, stands among the others."""
        begin = measure(self._model, self._whole & (part - 1))
        return slice(begin, begin + measure(self._model, part))

    def _observe(self, positions: Floats, velocities: Floats) -> Floats:
        hidden, fastest = self._walker.hidden, self._walker.fastest
        return np.concatenate((positions[:, hidden:], np.clip(velocities, -fastest, fastest)), axis=1)

    def _judge(
        self, speeds: Floats, actions: NDArray[Any], positions: Floats, velocities: Floats
    ) -> tuple[Rewards, Bools]:
        squares = np.square(actions).sum(axis=1)
        kind = Weak if squares.dtype == np.float32 else np.float64
        cost = squares.astype(kind) * kind(self._walker.effort)
        if self._walker.stands is None:
            return speeds - cost, np.zeros(len(speeds), dtype=np.bool_)
        return speeds + 1.0 - cost, ~self._walker.stands(positions, velocities)
