"""PyFlyt's flights to one waypoint, as a policy sees them and as they are scored.

PyFlyt makes a world for every flight: three quarters of a reset go into connecting to Bullet, reading the drone's files
and building its body. Here a world is made once, and put back.
"""

import contextlib
import io
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.wrappers import STDOUT, silence

ASKED = (  # what a step asks of Bullet, which a client looks up every time
    "LINK_FRAME",
    "applyExternalForce",
    "applyExternalTorque",
    "getBasePositionAndOrientation",
    "getBaseVelocity",
    "getContactPoints",
    "getEulerFromQuaternion",
    "getLinkStates",
    "getMatrixFromQuaternion",
    "stepSimulation",
)


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
        self._world: _World | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The first flight as PyFlyt begins it, and without a word; those behind it in the same world, put back."""
        if self._world is not None:
            observation, info = self._world.begin(seed)
        else:
            # Bullet prints from C when a flight begins, and PyFlyt from Python.
            with silence(STDOUT), contextlib.redirect_stdout(io.StringIO()):
                observation, info = self.env.reset(seed=seed, options=options)
            if self.render_mode is None:  # a picture shows the target, which is a body of its flight
                self._world = _World(self.env.unwrapped)
        return _flatten(observation), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """The target ends an episode: there is nothing behind it to look forward to."""
        observation, reward, terminated, truncated, info = self.env.step(np.asarray(action, dtype=np.float64))
        reached = bool(info["env_complete"])
        gained = reward if self._shaped else float(reached)
        return _flatten(observation), gained, terminated or reached, truncated and not reached, info


class _World:
    """The world of a task that has begun its first flight: floor and drone, in which any flight can begin.

    `begin` is the task's own `reset` without what it loads. Bullet puts back bodies and contacts, PyFlyt its drone.
    """

    def __init__(self, task: Any) -> None:
        self._task, self._client = task, task.env
        (self._drone,) = task.env.drones
        for name in ASKED:
            setattr(self._client, name, getattr(self._client, name))
        self._airborne = self._client.saveState()  # nothing touches anything

    def begin(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """The first observation of a flight, and what its task says of it."""
        task, client, drone = self._task, self._client, self._drone
        gymnasium.Env.reset(task, seed=seed)  # its random numbers
        for part in (client, drone, drone.motors, drone.body):
            part.np_random = task.np_random
        client.restoreState(self._airborne)
        client.physics_steps, client.aviary_steps, client.elapsed_time = 0, 0, 0
        for controller in drone.z_PIDs:
            controller.reset()
        drone.reset()
        drone.update_state()
        task.step_count, task.action, task.reward = 0, np.zeros(4), 0.0
        task.termination, task.truncation = False, False
        task.info = {"out_of_bounds": False, "collision": False, "env_complete": False, "num_targets_reached": 0}
        task.waypoints.reset(client, task.np_random)
        task.end_reset()
        return task.state, task.info


def _flatten(observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    row: NDArray[np.float32] = np.concatenate(
        [observation["attitude"], observation["target_deltas"][0]], dtype=np.float32
    )
    return row
