"""What stands between an environment and the evaluation loop: the time feature, silence, a faster Bullet."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.atari import STACK, load_emulator
from quarl_bench.environments.screens import SIDE
from quarl_bench.errors import PolicyError, SpecError

LONGEST = 20_000  # steps of an episode of an environment that has no step limit
STDOUT, STDERR = 1, 2


class TimeFeature(gymnasium.Wrapper[NDArray[Any], Any, NDArray[Any], Any]):
    """Appends the remaining time, 1 - step / limit, to vector observations, as rl-zoo's agents were trained."""

    def __init__(self, environment: gymnasium.Env[Any, Any], limit: int) -> None:
        super().__init__(environment)
        space = environment.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise SpecError(f"a time feature needs observations in a vector, not {space}")
        low, high = (np.append(bound, end).astype(space.dtype) for bound, end in ((space.low, 0), (space.high, 1)))
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
        self._dtype = space.dtype
        self._limit = limit
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[Any], dict[str, Any]]:
        """Start an episode; the share of time that remains is 1."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._step = 0
        return self._append(observation), info

    def step(self, action: Any) -> tuple[NDArray[Any], Any, bool, bool, dict[str, Any]]:
        """Take a step; the share of time that remains falls by one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._step += 1
        return self._append(observation), reward, terminated, truncated, info

    def _append(self, observation: NDArray[Any]) -> NDArray[Any]:
        row = np.empty(len(observation) + 1, self._dtype)
        row[:-1], row[-1] = observation, 1 - self._step / self._limit
        return row


class FastBullet(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Bullet robot with the same physics and arithmetic, asked with less Python, that resets without a word.

    Half of a step goes into finding pybullet's functions and into asking links, joints and motors one by one. Bullet
    prints from C code when it connects.
    """

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Without a word; the robot's parts are there, or new, only behind this."""
        with silence(STDOUT):
            first = self.env.reset(seed=seed, options=options)
        _Body(self.env.unwrapped.robot)  # type: ignore[attr-defined]
        return first


class _Body:
    """A robot's links, joints and motors, each of which are asked or commanded at once."""

    def __init__(self, robot: Any) -> None:
        client, joints = robot._p, robot.ordered_joints  # noqa: SLF001 (its name for the client)
        for name in ("getContactPoints", "getLinkState", "stepSimulation"):
            setattr(client, name, getattr(client, name))  # what a client looks up at every call
        body = joints[0].bodies[joints[0].bodyIndex]
        places = [joint.jointIndex for joint in joints]
        linked = [part for part in robot.parts.values() if part.bodyPartIndex >= 0]  # others are a body's base
        self._ask_links = partial(client.getLinkStates, body, [part.bodyPartIndex for part in linked])
        self._ask_joints = partial(client.getJointStates, body, places)
        self._command = partial(client.setJointMotorControlArray, body, places, client.TORQUE_CONTROL)
        self._powers = [robot.power * joint.power_coef for joint in joints]
        self._calculate = partial(type(robot).calc_state, robot)
        for place, part in enumerate(linked):
            part.bp_pose = _Pose(self, place, client.getEulerFromQuaternion)
        for place, joint in enumerate(joints):
            joint.get_state = partial(self._get_joint, place)
        robot.calc_state, robot.apply_action = self.calc_state, self.apply_action

    def calc_state(self) -> NDArray[Any]:
        """What the robot makes of the present links and joints."""
        self.links, self._joints = self._ask_links(), self._ask_joints()
        state: NDArray[Any] = self._calculate()
        return state

    def apply_action(self, action: NDArray[Any]) -> None:
        """Set the force of every motor; shares (motors,) are clipped to [-1, 1]."""
        if not np.isfinite(action).all():
            raise PolicyError(f"the action {action} is not finite; no motor can do that")
        shares = np.clip(action, -1, 1).tolist()
        self._command(forces=[power * share for power, share in zip(self._powers, shares, strict=True)])

    def _get_joint(self, place: int) -> Any:
        return self._joints[place][:2]


@dataclass(frozen=True)
class _Pose:
    """A link's position and orientation."""

    body: _Body
    place: int
    to_angles: Callable[[Any], Any]

    def xyz(self) -> Any:
        """The body's position (x, y, z) in metres in the world's frame."""
        return self.body.links[self.place][0]

    def orientation(self) -> Any:
        """Orientation of the body as a quaternion."""
        return self.body.links[self.place][1]

    def rpy(self) -> Any:
        """Roll, pitch and yaw of the body in radians."""
        return self.to_angles(self.orientation())


class Unlimited(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that has no step limit and is to end its episodes itself; SpecError where one does not end."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Count from 0 again."""
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step, which is one of `LONGEST` at most."""
        self._steps += 1
        if self._steps > LONGEST:
            name = self.spec.id if self.spec else type(self.unwrapped).__name__
            raise SpecError(
                f"environment {name} has no step limit, and an episode goes on after {LONGEST:,} steps; register it "
                "with max_episode_steps, or give its class an attribute of that name"
            )
        return self.env.step(action)


class GameSpaces(gymnasium.Env[Any, Any]):
    """What an agent of an Atari game sees and may do."""

    def __init__(self, id_: str) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(load_emulator(id_).getMinimalActionSet()))


@contextlib.contextmanager
def silence(*streams: int) -> Iterator[None]:
    """Keep away what is written to these file descriptors, by C code above all."""
    _flush()
    saved = [os.dup(stream) for stream in streams]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in streams:
            os.dup2(nowhere, stream)
        yield
    finally:
        _flush()
        for stream, copy in zip(streams, saved, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


def _flush() -> None:
    """Flush what C and Python still hold for stdout and stderr, so that redirecting them loses no line."""
    ctypes.CDLL(None).fflush(None)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
