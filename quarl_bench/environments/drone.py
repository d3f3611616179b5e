"""PyFlyt's quadrotor, flown by its own physics and arithmetic in a loop of ours: the same bits, and nothing compiled.

Seven eighths of PyFlyt's step go into finding pybullet's functions, into arrays of three numbers, and into numba's way
in and out. Here Bullet is asked what PyFlyt asks it, once each, and numbers are Python's. A product of matrices stays
NumPy's, whose order of summation is its own; `dot` takes the way through BLAS that PyFlyt's `matmul` takes.
"""

import contextlib
import importlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.wrappers import STDOUT, silence

SLOWEST, FASTEST = 0.05, 1.0  # what PyFlyt lets a motor be told
MEAN_NOISE = 4.0  # PyFlyt draws its noise by normal(*throttle.shape): one number, around the number of motors
HERE = (0.0, 0.0, 0.0)  # where a force acts on its link
TICKS_TO_SETTLE = 10  # without a command, before a flight begins
REST = (0.0, 0.0, 0.0, -1.0)  # a command of three rates and a thrust, which is clipped to [0, 1]


@dataclass(frozen=True)
class Gains:
    """What a controller of PyFlyt's is made of, in its place: PyFlyt's own is compiled when one is made."""

    kp: NDArray[np.float64]
    ki: NDArray[np.float64]
    kd: NDArray[np.float64]
    limits: NDArray[np.float64]
    period: float

    def reset(self) -> None:
        """A drone resets every controller that it has made."""


class Drone:
    """The drone of a task's world, which is made here, without a word; `begin` puts it back for another flight.

    `position`, `orientation` (a quaternion), `velocity` in the world's frame, `rates` in the drone's, and the motors'
    `throttles` are those behind the last tick.
    """

    def __init__(self, task: Any) -> None:
        with hush(), _plain_controllers():
            task.begin_reset()
        (drone,) = task.env.drones
        self._bullet = importlib.import_module("pybullet")
        self._world, self._floor, self._body = task.env._client, task.env.planeId, drone.Id  # noqa: SLF001 (its number)
        self._hull = int(drone.body.body_ids[0])
        self._start = drone.start_pos, drone.start_orn
        self._airborne = self._bullet.saveState(self._world)  # nothing touches anything
        (rates,) = drone.PIDs
        self._gains = list(zip(*(part.tolist() for part in (rates.kp, rates.ki, rates.kd, rates.limits)), strict=True))
        self._period = rates.period
        self._mix = drone.motor_map
        motors = drone.motors
        self._motors = list(
            zip(
                motors.motor_ids,
                (motors.physics_period / motors.tau).tolist(),
                motors.noise_ratio.tolist(),
                motors.max_rpm.tolist(),
                motors.thrust_coef[:, 0].tolist(),
                motors.torque_coef[:, 0].tolist(),
                strict=True,
            )
        )
        self._drag, self._twist_drag = drone.body.drag_consts[0].tolist(), drone.drag_coef_pqr
        self._matrix = np.empty(9)  # from the drone's frame to the world's, row by row
        self._turn = self._matrix.reshape(3, 3).T
        self._ask_pose = partial(self._bullet.getBasePositionAndOrientation, self._body, self._world)
        self._ask_speed = partial(self._bullet.getBaseVelocity, self._body, self._world)
        self._ask_hull = partial(self._bullet.getLinkState, self._body, self._hull, 1, 0, self._world)
        self._ask_contacts = partial(self._bullet.getContactPoints, physicsClientId=self._world)

    def begin(self) -> None:
        """Put the drone where every flight begins; the first ticks are `settle`'s."""
        self._bullet.restoreState(self._airborne, physicsClientId=self._world)
        self._bullet.resetBasePositionAndOrientation(self._body, *self._start, self._world)
        self._integrals, self._errors = [0.0] * len(self._gains), [0.0] * len(self._gains)
        self.throttles = [0.0] * len(self._motors)
        self._contacts: tuple[Any, ...] = ()
        self._read()

    def settle(self, random: np.random.Generator) -> None:
        """The ticks that PyFlyt waits before a flight."""
        for _ in range(TICKS_TO_SETTLE):
            self.tick(REST, random)

    def tick(self, command: Sequence[float], random: np.random.Generator) -> bool:
        """The motors are told once, physics takes two steps; whether anything touched the floor."""
        told, floored = self._control(command), False
        for noise in random.standard_normal(2).tolist():
            self._push(told, MEAN_NOISE + noise)
            self._bullet.stepSimulation(self._world)
            self._read()
            self._contacts = self._ask_contacts()  # as they stay until the next step of physics
            if self._contacts:
                floored = floored or any(self._floor in contact[1:3] for contact in self._contacts)
        return floored

    def find_attitude(self) -> Any:
        """The orientation as PyFlyt shows it: a quaternion made of roll, pitch and yaw."""
        return self._bullet.getQuaternionFromEuler(self._bullet.getEulerFromQuaternion(self.orientation))

    def find_way(self, target: Sequence[float]) -> NDArray[np.float64]:
        """The way to a place of the world, (3,) in metres in the drone's frame."""
        frame = np.array(self._bullet.getMatrixFromQuaternion(self.find_attitude())).reshape(3, 3)
        away = np.array([there - here for there, here in zip(target, self.position, strict=True)])
        way: NDArray[np.float64] = away.dot(frame)
        return way

    def turn(self, vector: Sequence[float]) -> NDArray[np.float64]:
        """A vector of the world, seen from the drone."""
        turned: NDArray[np.float64] = self._turn.dot(vector)
        return turned

    def _control(self, command: Sequence[float]) -> list[float]:
        """What a command of rates (3 in rad/s) and thrust tells the motors: shares in [SLOWEST, FASTEST]."""
        mixed = []
        for place, (kp, ki, kd, limit) in enumerate(self._gains):
            error = command[place] - self.rates[place]
            integral = _clip(self._integrals[place] + ki * error * self._period, -limit, limit)
            derivative = kd * (error - self._errors[place]) / self._period
            self._integrals[place], self._errors[place] = integral, error
            mixed.append(_clip(kp * error + integral + derivative, -limit, limit))
        mixed.append(_clip(command[3], 0.0, 1.0))
        shares: list[float] = self._mix.dot(np.array(mixed)).tolist()
        return bound(shares)

    def _push(self, told: list[float], noise: float) -> None:
        """Every force and torque of a step of physics."""
        force, torque = self._bullet.applyExternalForce, self._bullet.applyExternalTorque
        frame, body, world = self._bullet.LINK_FRAME, self._body, self._world
        drag = [_oppose(speed, coefficient) for speed, coefficient in zip(self._slip, self._drag, strict=True)]
        force(body, self._hull, drag, HERE, frame, world)
        for place, (motor, lag, ratio, fastest, lifting, twisting) in enumerate(self._motors):
            throttle = self.throttles[place]
            throttle += lag * (told[place] - throttle)
            throttle += noise * throttle * ratio
            self.throttles[place] = throttle
            speed = throttle * fastest
            power = speed * speed if speed > 0 else -(speed * speed)
            force(body, motor, (0.0, 0.0, power * lifting), HERE, frame, world)
            torque(body, motor, (0.0, 0.0, power * twisting), frame, world)
        if not self._contacts:
            torque(body, -1, [_oppose(rate, self._twist_drag) for rate in self.rates], frame, world)

    def _read(self) -> None:
        """Ask Bullet where the drone is and how it moves."""
        self.position, self.orientation = self._ask_pose()
        self.velocity, spin = self._ask_speed()
        self._matrix[:] = self._bullet.getMatrixFromQuaternion(self.orientation, self._world)
        self.rates = self._turn.dot(spin).tolist()
        self._slip = self._turn.dot(self._ask_hull()[6]).tolist()


def bound(shares: list[float]) -> list[float]:
    """Lowest and highest of the motors' shares within [SLOWEST, FASTEST], and the others between them, as PyFlyt.

    Where all are at a bound or beyond it, PyFlyt divides 0 by 0; they stay at the bound.
    """
    high, low = max(shares), min(shares)
    if high != low:
        top, bottom = min(high, FASTEST), max(low, SLOWEST)
        lift = (bottom - low) / (top - low) if low < bottom else 0.0
        sink = (high - top) / (high - bottom) if top < high else 0.0
        shares = [share + (lift * (top - share) - sink * (share - bottom)) for share in shares]
    return [_clip(share, SLOWEST, FASTEST) for share in shares]


def _oppose(speed: float, coefficient: float) -> float:
    """Drag: against the speed, by its square."""
    return (-coefficient if speed > 0 else coefficient) * (speed * speed)


def _clip(number: float, low: float, high: float) -> float:
    return min(max(number, low), high)


@contextlib.contextmanager
def hush() -> Iterator[None]:
    """Around the making of a world: Bullet prints from C, and PyFlyt from Python."""
    with silence(STDOUT), contextlib.redirect_stdout(io.StringIO()):
        yield


@contextlib.contextmanager
def _plain_controllers() -> Iterator[None]:
    """Within, PyFlyt makes a drone whose controllers are their gains."""
    quadx: Any = importlib.import_module("PyFlyt.core.drones.quadx")
    compiled, quadx.PID = quadx.PID, Gains
    try:
        yield
    finally:
        quadx.PID = compiled
