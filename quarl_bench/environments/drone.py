"""PyFlyt's quadrotor with the same physics and arithmetic, asked with less Python, in one world that is put back.

Three quarters of PyFlyt's reset go into connecting to Bullet and building the drone, half of its step into what numpy
costs on three numbers, and the first step of a process into compiling. Whatever NumPy's matrix products round is left
to them; everything else is the same sum of the same numbers.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.system.extras import read_version

KNOWN = "0.29.0"  # PyFlyt's version whose arithmetic this is
RATES = 0  # its flight mode of angular velocities and thrust
SETTLING = 10  # of its control periods pass before a flight begins
WEAKEST = 0.05  # command to a motor that turns
ORIGIN = (0.0, 0.0, 0.0)
Step = tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]


class Gains:
    """The constants of a controller, which PyFlyt would compile."""

    def __init__(self, kp: Any, ki: Any, kd: Any, limits: Any, period: float) -> None:
        self.rows = [*zip(kp.tolist(), ki.tolist(), kd.tolist(), limits.tolist(), strict=True)]
        self.period = period

    def reset(self) -> None:
        """There is nothing that it remembers."""


def can_fly(task: Any) -> bool:
    """Whether a task of PyFlyt's is the flight that `Drone` knows: rates, one target, no picture, this version."""
    return bool(
        read_version("PyFlyt") == KNOWN
        and type(task).__name__ == "QuadXWaypointsEnv"
        and task.render_mode is None
        and task.flight_mode == RATES
        and task.angle_representation == 1
        and task.waypoints.num_targets == 1
        and not task.waypoints.use_yaw_targets
    )


@contextlib.contextmanager
def postpone(task: Any) -> Iterator[None]:
    """Let a reset of `task` build its world, in which nothing has moved and nothing was compiled."""
    from PyFlyt.core.drones import quadx

    _, base, *_ = type(task).__mro__
    with patch.object(quadx, "PID", Gains), patch.object(base, "end_reset", lambda *_: None):
        yield


class Drone:
    """A drone on its way to a target, in the world that a reset of its task has built (`postpone`)."""

    def __init__(self, task: Any) -> None:
        self._task, self._client = task, task.env
        client = self._client
        (self._drone,) = client.drones
        drone, motors = self._drone, self._drone.motors
        self._id = drone.Id
        # What a step asks of Bullet, which a client looks up every time.
        self._push, self._twist = client.applyExternalForce, client.applyExternalTorque
        self._pose, self._velocity = client.getBasePositionAndOrientation, client.getBaseVelocity
        self._matrix, self._angles = client.getMatrixFromQuaternion, client.getEulerFromQuaternion
        self._quaternion, self._link = client.getQuaternionFromEuler, client.getLinkState
        self._contacts, self._pass = client.getContactPoints, client.stepSimulation
        self._frame = client.LINK_FRAME
        (self._body,) = drone.body.body_ids.tolist()
        (self._drag,) = drone.body.drag_consts.tolist()
        self._gains, self._period = drone.PIDs[0].rows, drone.PIDs[0].period
        self._motors = [
            (place, *constants)
            for place, *constants in zip(
                motors.motor_ids,
                (motors.physics_period / motors.tau).tolist(),
                motors.noise_ratio.tolist(),
                motors.max_rpm.tolist(),
                motors.thrust_unit[..., 0].tolist(),
                motors.thrust_coef[..., 0].tolist(),
                motors.torque_coef[..., 0].tolist(),
                strict=True,
            )
        ]
        self._standing = client.saveState()  # nothing has moved

    def begin(self, seed: int | None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Put the world back. The first observation (24,) of a flight, and what its task says of it."""
        task, client, drone = self._task, self._client, self._drone
        gymnasium.Env.reset(task, seed=seed)  # its random numbers
        client.restoreState(self._standing)
        client.resetBasePositionAndOrientation(self._id, drone.start_pos, drone.start_orn)
        task.waypoints.reset(client, task.np_random)
        return self.settle()

    def settle(self) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Let the time pass before a flight; the same of a world that was just built."""
        self._random, self._waypoints = self._task.np_random, self._task.waypoints
        self._throttle, self._commands = [0.0] * 4, [0.0] * 4
        self._sums, self._errors = [0.0] * 3, [0.0] * 3
        self._steps, self._ended, self._late = 0, False, False
        self._distance = np.inf
        self._info = {"out_of_bounds": False, "collision": False, "env_complete": False, "num_targets_reached": 0}
        self._look()
        self._touching = bool(self._contacts())
        for _ in range(SETTLING):
            self._turn([0.0, 0.0, 0.0, -1.0])
        self._locate()
        return self._observe([0.0] * 4), self._info

    def take_step(self, action: NDArray[np.float64]) -> Step:
        """Four control periods with one action (4,), or fewer where the flight ends.

        Observation (24,), PyFlyt's reward, whether it ended by a fall, whether it ended otherwise, and PyFlyt's info.
        """
        if not np.isfinite(action).all():
            raise PolicyError(f"the action {action} is not finite; no motor can do that")
        command, reward = action.tolist(), -0.1
        for _ in range(self._task.env_step_ratio):
            if self._ended or self._late:
                break
            grounded = self._turn(command)
            before = self._distance
            self._locate()
            reward = self._judge(reward, before, grounded=grounded)
        self._steps += 1
        return self._observe(command), reward, self._ended, self._late, self._info

    def _judge(self, reward: float, before: float, *, grounded: bool) -> float:
        """The reward behind a control period, and whether it was the last one."""
        task, info = self._task, self._info
        self._late |= self._steps > task.max_steps
        if grounded:
            reward, info["collision"], self._ended = -100.0, True, True
        if np.sqrt(self._place.dot(self._place)) > task.flight_dome_size:
            reward, info["out_of_bounds"], self._ended = -100.0, True, True
        if not task.sparse_reward:
            reward += 0.0 if np.isinf(before + self._distance) else max(3.0 * (before - self._distance), 0.0)
            reward += 0.1 / self._distance
            reward -= 0.01 * abs(self._rates[2]) ** 2
        if self._distance < task.waypoints.goal_reach_distance:
            reward, info["env_complete"], info["num_targets_reached"], self._late = 100.0, True, 1, True
        return reward

    def _turn(self, command: list[float]) -> bool:
        """A control period: new commands to the motors, and the physics in between; whether the floor was touched."""
        self._control(command)
        grounded = False
        for _ in range(self._client.updates_per_step):
            self._pull()
            self._pass()
            self._look()
            contacts = self._contacts()
            self._touching = bool(contacts)
            grounded |= any(self._client.planeId in contact[1:3] for contact in contacts)
        return grounded

    def _control(self, command: list[float]) -> None:
        """Commands (4,) to the motors for three angular velocities and a thrust."""
        mixed, period = [], self._period
        for axis, (kp, ki, kd, limit) in enumerate(self._gains):
            error = command[axis] - self._rates[axis]
            total = self._sums[axis] = _clip(self._sums[axis] + ki * error * period, -limit, limit)
            change = kd * (error - self._errors[axis]) / period
            self._errors[axis] = error
            mixed.append(_clip(kp * error + total + change, -limit, limit))
        power = np.matmul(self._drone.motor_map, np.array([*mixed, _clip(command[3], 0.0, 1.0)]))
        high, low = power.max(), power.min()
        if high != low:
            highest, lowest = min(high, 1.0), max(low, WEAKEST)
            more = (lowest - low) / (highest - low) * (highest - power)
            power += more - (high - highest) / (high - lowest) * (power - lowest)
        self._commands = [_clip(one, WEAKEST, 1.0) for one in power.tolist()]

    def _pull(self) -> None:
        """What the air and the motors do to the drone in a step of the physics."""
        id_, frame, push, twist = self._id, self._frame, self._push, self._twist
        air = [_oppose(speed, drag) for speed, drag in zip(self._speeds, self._drag, strict=True)]
        push(id_, self._body, air, ORIGIN, frame)
        noise, throttles = self._random.normal(4), self._throttle  # of mean 4, as PyFlyt draws it
        for place, (motor, rate, share, fastest, unit, thrust, torque) in enumerate(self._motors):
            throttle = throttles[place]
            throttle += rate * (self._commands[place] - throttle)
            throttle += noise * throttle * share
            throttles[place] = throttle
            turns = throttle * fastest
            square = turns * turns * _sign(turns)
            x, y, z = unit
            x, y, z = square * x, square * y, square * z
            push(id_, motor, (x * thrust, y * thrust, z * thrust), ORIGIN, frame)
            twist(id_, motor, (x * torque, y * torque, z * torque), frame)
        if not self._touching:
            drag = self._drone.drag_coef_pqr
            twist(id_, -1, [_oppose(rate, drag) for rate in self._rates], frame)

    def _look(self) -> None:
        """Where the drone is, and how it turns and moves in its own frame."""
        self._at, self._attitude = self._pose(self._id)
        self._moves, turns = self._velocity(self._id)
        self._rotation = np.array(self._matrix(self._attitude)).reshape(3, 3).T
        self._rates = np.matmul(self._rotation, turns).tolist()
        moved = np.array([self._link(self._id, self._body, computeLinkVelocity=True)[6]])
        self._speeds = np.matmul(self._rotation, moved.T)[:, 0].tolist()

    def _locate(self) -> None:
        """Where the target is from here."""
        self._place = np.array(self._at)
        self._turned = self._quaternion(self._angles(self._attitude))
        turn = np.array(self._matrix(self._turned)).reshape(3, 3)
        self._way = np.matmul(self._waypoints.targets - self._place, turn)[0]
        self._distance = float(np.sqrt(self._way.dot(self._way)))

    def _observe(self, command: list[float]) -> NDArray[np.float32]:
        moves = np.matmul(self._rotation, self._moves).tolist()
        parts = (self._rates, self._turned, moves, self._at, command, self._throttle, self._way.tolist())
        return np.array([number for part in parts for number in part], np.float32)


def _clip(number: float, low: float, high: float) -> float:
    return min(max(number, low), high)


def _sign(number: float) -> float:
    return 1.0 if number > 0 else -1.0 if number < 0 else 0.0


def _oppose(speed: float, drag: float) -> float:
    """The drag against a speed: it grows with the square."""
    return -_sign(speed) * drag * (speed * speed)
