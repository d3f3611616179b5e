"""PyFlyt's flights to one waypoint, as a policy sees them and as they are scored.

PyFlyt makes a world for every flight, and most of a step goes into its objects. Here a world is made once, put back for
every flight, and what PyFlyt makes of its drone is computed beside it, to the bit.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.drone import REST, Drone, hush
from quarl_bench.errors import PolicyError
from quarl_bench.system.extras import read_version

KNOWN_VERSION = "0.29.0"  # of PyFlyt, whose rules and whose drone are computed here
KNOWN_TASK = "PyFlyt.gym_envs.quadx_envs.quadx_waypoints_env.QuadXWaypointsEnv"
RATES, QUATERNION = 0, 1  # its numbers for a command of rates, and for an attitude as a quaternion
LATER, FAILED, REACHED = -0.1, -100.0, 100.0  # rewards of a step, of an end without the target, and of the target


class Flight(gymnasium.Wrapper[Any, Any, Any, Any]):
    """PyFlyt's flight to one waypoint: observations in a vector, an end at the target, silence.

    Observation (24,): attitude, velocities and position, the last action, motors, and the target in the body's frame.
    The reward is 1 where the target is reached, so that a return is a success; with `shaped` it is PyFlyt's own, which
    can be learned from. PyFlyt itself flies what shows a picture, or has options or a version that are not known here.
    """

    def __init__(self, environment: gymnasium.Env[Any, Any], *, shaped: bool) -> None:
        super().__init__(environment)
        spaces: Any = environment.observation_space
        size = spaces["attitude"].shape[0] + spaces["target_deltas"].feature_space.shape[0]
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        bounds: Any = environment.action_space
        self.action_space = gymnasium.spaces.Box(bounds.low.astype(np.float32), bounds.high.astype(np.float32))
        self._shaped = shaped
        self._known = _is_known(environment)
        self._course: _Course | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A flight as PyFlyt begins it, and without a word."""
        if self._known:
            if self._course is None:
                self._course = _Course(self.env)
            return self._course.begin(seed)
        with hush():
            observation, info = self.env.reset(seed=seed, options=options)
        return _flatten(observation), info

    def step(self, action: Any) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        """The target ends an episode: there is nothing behind it to look forward to.

        PolicyError for an action that is not finite.
        """
        action = np.asarray(action, dtype=np.float64)
        if not np.isfinite(action).all():
            raise PolicyError(f"the action {action} is not finite; no motor can do that")
        reward: Any
        if self._course is not None:
            observation, reward, terminated, truncated, info = self._course.take_step(action)
        else:
            state, reward, terminated, truncated, info = self.env.step(action)
            observation = _flatten(state)
        reached = bool(info["env_complete"])
        gained = reward if self._shaped else float(reached)
        return observation, gained, terminated or reached, truncated and not reached, info


class _Course:
    """A task's flights in one world, one behind the other: its `reset` and its `step`."""

    def __init__(self, task: Any) -> None:
        self._task, self._drone = task, Drone(task)

    def begin(self, seed: int | None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """The first observation of a flight, and what is said of it."""
        task, drone = self._task, self._drone
        gymnasium.Env.reset(task, seed=seed)  # its random numbers
        drone.begin()
        task.waypoints.reset(task.env, task.np_random)
        drone.settle(task.np_random)
        self._steps, self._terminated, self._truncated = 0, False, False
        self._info = {"out_of_bounds": False, "collision": False, "env_complete": False, "num_targets_reached": 0}
        self._way = drone.find_way(self._target)
        self._observation = self._observe([0.0] * len(REST))
        return self._observation, self._info

    def take_step(self, action: NDArray[np.float64]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """The next observation, PyFlyt's reward, and whether the flight has ended and how."""
        command, reward, ticks = action.tolist(), LATER, 0
        while ticks < self._task.env_step_ratio and not (self._terminated or self._truncated):
            reward = self._tick(command, reward)
            ticks += 1
        if ticks:
            self._observation = self._observe(command)
        self._steps += 1
        return self._observation, reward, self._terminated, self._truncated, self._info

    def _tick(self, command: list[float], reward: float) -> float:
        """Fly on, and judge: the reward of the step so far, from what it was before."""
        task, drone, info = self._task, self._drone, self._info
        floored, before = drone.tick(command, task.np_random), _measure(self._way)
        self._way = drone.find_way(self._target)
        distance = _measure(self._way)
        if self._steps > task.max_steps:
            self._truncated = True
        if floored:
            reward, self._terminated, info["collision"] = FAILED, True, True
        if _measure(np.array(drone.position)) > task.flight_dome_size:
            reward, self._terminated, info["out_of_bounds"] = FAILED, True, True
        reward += max(3.0 * (before - distance), 0.0)
        reward += 0.1 / distance
        reward -= 0.01 * abs(drone.rates[2]) ** 2  # not x * x: C's power, as of NumPy's numbers, rounds otherwise
        if distance < task.waypoints.goal_reach_distance:
            reward, self._truncated, info["env_complete"], info["num_targets_reached"] = REACHED, True, True, 1
        return reward

    @property
    def _target(self) -> list[float]:
        target: list[float] = self._task.waypoints.targets[0].tolist()
        return target

    def _observe(self, command: list[float]) -> NDArray[np.float32]:
        drone = self._drone
        velocity = drone.turn(drone.velocity).tolist()
        attitude = [*drone.rates, *drone.find_attitude(), *velocity, *drone.position]
        return np.array([*attitude, *command, *drone.throttles, *self._way.tolist()], np.float32)


def _measure(vector: NDArray[np.float64]) -> float:
    """Its length: `numpy.linalg.norm`."""
    return math.sqrt(vector.dot(vector))


def _is_known(environment: Any) -> bool:
    """Whether a flight has the version and the options that are known here."""
    kind = type(environment)
    return (
        f"{kind.__module__}.{kind.__qualname__}" == KNOWN_TASK
        and read_version("PyFlyt") == KNOWN_VERSION
        and environment.render_mode is None
        and (environment.flight_mode, environment.angle_representation) == (RATES, QUATERNION)
        and not environment.sparse_reward
        and environment.waypoints.num_targets == 1
        and not environment.waypoints.use_yaw_targets
    )


def _flatten(observation: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    row: NDArray[np.float32] = np.concatenate(
        [observation["attitude"], observation["target_deltas"][0]], dtype=np.float32
    )
    return row
