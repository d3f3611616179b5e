"""Classic control on a batch of episodes, step-equal to Gymnasium's scalar environments: every bit of a state,
an observation and a reward is the same.

The equations are those of Gymnasium's documentation (Environments / Classic Control), which follow Barto, Sutton and
Anderson 1983 (cart-pole), Moore 1990 (mountain car) and Sutton and Barto, Reinforcement Learning: An Introduction, 2018
(acrobot). Sums and products keep Gymnasium's order, because floating point is not associative, except for factors of
one. Where it takes a float64 scalar to the power 2, the C library's `pow` answers, which is not always the correctly
rounded x * x; `numpy.float_power` calls it on arrays, `x**2` and `numpy.power` do not.

A state is an array (variables, episodes); no function writes into the one it is given. Actions lie in the action space.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = NDArray[np.floating[Any]]
Floats = NDArray[np.float32]
Rewards = NDArray[np.float64]
Bools = NDArray[np.bool_]
Step = tuple[State, Rewards, Bools]  # the next state, the rewards, and which episodes reached a terminal state

# What a float32 scalar times a Python float is: float64 under NumPy 1, float32 under NumPy 2. Gymnasium's results for
# continuous actions depend on it.
Weak: type[np.floating[Any]] = type(np.float32(1) * 1.0)

# By action; an action that does not exist is an IndexError.
CART_FORCES = np.array([-10.0, 10.0])
DIRECTIONS = np.array([-1.0, 0.0, 1.0])
PLACES = np.array([1, 0, 1, 0], dtype=np.float32)  # of position, velocity, angle, angular velocity


@dataclass(frozen=True)
class Dynamics:
    """An environment's physics, without its time limit."""

    advance: Callable[[State, NDArray[Any]], Step]  # state (variables, n), actions (n,) or (n, 1)
    observe: Callable[[State], Floats]  # state (variables, n) -> observations (n, ...)


def observe_state(state: State) -> Floats:
    """Observations (n, width): the state itself in float32."""
    return state.T.astype(np.float32, order="C")


def observe_places(state: State) -> Floats:
    """Observations (n, 4) of CartPole's states (4, n), with zeros for velocities."""
    return observe_state(state) * PLACES


def advance_cartpole(state: State, actions: NDArray[Any]) -> Step:
    """A pole on a cart that is pushed left or right; Euler steps of 20 ms."""
    gravity, pole_mass, half_length, total_mass = 9.8, 0.1, 0.5, 0.1 + 1.0
    pole_moment = pole_mass * half_length
    _, speed, angle, spin = state
    cosine, sine = np.cos(angle), np.sin(angle)
    force = CART_FORCES[actions]
    pushed = (force + pole_moment * np.square(spin) * sine) / total_mass
    change = np.empty_like(state)
    change[0], change[2] = speed, spin
    change[3] = (gravity * sine - cosine * pushed) / (
        half_length * (4.0 / 3.0 - pole_mass * np.square(cosine) / total_mass)
    )
    change[1] = pushed - pole_moment * change[3] * cosine / total_mass
    after = state + 0.02 * change
    failed = (np.abs(after[0]) > 2.4) | (np.abs(after[2]) > 12 * 2 * pi / 360)
    return after, np.ones(len(failed)), failed


def advance_acrobot(state: State, actions: NDArray[Any]) -> Step:
    """Two links, a torque of -1, 0 or 1 between them; one Runge-Kutta step of 0.2 s (the book's equations)."""
    torque = DIRECTIONS[actions]
    start = state.astype(np.float64)  # the first state is float32
    k1 = _derive_acrobot(start, torque)
    k2 = _derive_acrobot(start + 0.1 * k1, torque)
    k3 = _derive_acrobot(start + 0.1 * k2, torque)
    k4 = _derive_acrobot(start + 0.2 * k3, torque)
    after = start + 0.2 / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    after[:2] = _wrap_angles(after[:2])
    after[2] = _clamp(after[2], -4 * pi, 4 * pi)
    after[3] = _clamp(after[3], -9 * pi, 9 * pi)
    swung_up = -np.cos(after[0]) - np.cos(after[1] + after[0]) > 1.0
    return after, np.where(swung_up, 0.0, -1.0), swung_up


def observe_acrobot(state: State) -> Floats:
    """Cosine and sine of both angles, both velocities."""
    seen = np.empty((state.shape[1], 6), np.float32)
    seen[:, 0:4:2], seen[:, 1:4:2] = np.cos(state[:2]).T, np.sin(state[:2]).T
    seen[:, 4:] = state[2:].T
    return seen


def _derive_acrobot(state: State, torque: NDArray[np.float64]) -> State:
    """Time derivative for links of length and mass one, centred at one half, with a moment of inertia of one."""
    angle1, angle2, spin1, spin2 = state
    cosine, sine = np.cos(angle2), np.sin(angle2)
    square1, square2 = np.float_power(state[2:], 2.0)
    d1 = 0.25 + (1.25 + cosine) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cosine) + 1.0
    phi2 = 0.5 * 9.8 * np.cos(angle1 + angle2 - pi / 2)
    phi1 = -0.5 * square2 * sine - spin2 * spin1 * sine + 1.5 * 9.8 * np.cos(angle1 - pi / 2) + phi2
    change = np.empty_like(state)
    change[:2] = state[2:]
    change[3] = (torque + d2 / d1 * phi1 - 0.5 * square1 * sine - phi2) / (1.25 - np.float_power(d2, 2.0) / d1)
    change[2] = -(d2 * change[3] + phi1) / d1
    return change


def _wrap_angles(angles: State) -> State:
    """Full turns off until every angle lies in [-pi, pi]; one subtraction at a time, as each of them rounds."""
    while (beyond := angles > pi).any():
        angles = np.where(beyond, angles - 2 * pi, angles)
    while (beyond := angles < -pi).any():
        angles = np.where(beyond, angles + 2 * pi, angles)
    return angles


def advance_mountaincar(state: State, actions: NDArray[Any]) -> Step:
    """A car in a valley, its engine pushing left, not at all or right."""
    position, velocity = state
    position, velocity = _move_car(position, velocity + (DIRECTIONS[actions] * 0.001 + np.cos(3 * position) * -0.0025))
    arrived = (position >= 0.5) & (velocity >= 0)
    return _stack_state(position, velocity, np.float64), np.full(len(arrived), -1.0), arrived


def advance_mountaincar_continuous(state: State, actions: NDArray[Any]) -> Step:
    """The same car under a force of -1 to 1; every state but the first is rounded to float32."""
    position, velocity = state.astype(np.result_type(state, Weak))
    action = actions[:, 0]
    slope = 0.0025 * np.cos(3 * position, dtype=np.float64)
    push = _clamp(action, -1.0, 1.0).astype(Weak) * Weak(0.0015) - slope.astype(Weak)
    position, velocity = _move_car(position, velocity + push)
    arrived = (position >= 0.45) & (velocity >= 0)
    rewards = np.where(arrived, 100.0, 0.0) - np.float_power(action, 2.0) * 0.1
    return _stack_state(position, velocity, np.float32), rewards, arrived


def _move_car(position: State, velocity: State) -> tuple[State, State]:
    """Position and velocity after one step; the wall on the left stops the car."""
    velocity = _clamp(velocity, -0.07, 0.07)
    position = _clamp(position + velocity, -1.2, 0.6)
    return position, np.where((position == -1.2) & (velocity < 0), 0.0, velocity)


def _stack_state(position: State, velocity: State, dtype: type[np.floating[Any]]) -> State:
    joined = np.empty((2, len(position)), dtype)
    joined[0], joined[1] = position, velocity
    return joined


def advance_pendulum(state: State, actions: NDArray[Any]) -> Step:
    """A pendulum under a torque of -2 to 2, semi-implicit Euler steps of 50 ms; never terminates."""
    angle, spin = state
    torque = _clamp(actions[:, 0], -2.0, 2.0)
    upright = (angle + pi) % (2 * pi) - pi
    costs = np.float_power(upright, 2.0) + 0.1 * np.float_power(spin, 2.0) + Weak(0.001) * _square_torque(torque)
    after = np.empty_like(state)
    after[1] = _clamp(spin + (15.0 * np.sin(angle) + Weak(3.0) * torque.astype(Weak)) * 0.05, -8.0, 8.0)
    after[0] = angle + after[1] * 0.05
    return after, -costs, np.zeros(len(costs), np.bool_)


def observe_pendulum(state: State) -> Floats:
    """Cosine and sine of the angle, and the velocity."""
    seen = np.empty((state.shape[1], 3), np.float32)
    seen[:, 0], seen[:, 1], seen[:, 2] = np.cos(state[0]), np.sin(state[0]), state[1]
    return seen


def _square_torque(torque: Floats) -> State:
    """A float32 scalar to the power 2: NumPy 1 takes its vectorised `power` in float64, NumPy 2 the C library's."""
    if Weak is np.float64:
        return np.asarray(np.power(torque.astype(np.float64), 2.0))
    return np.array([value**2 for value in torque])


def _clamp(values: State, low: float, high: float) -> State:
    """`np.clip` without its overhead, which is several times the work on a small batch."""
    return np.minimum(np.maximum(values, low), high)


DYNAMICS = {
    "CartPole-v1": Dynamics(advance_cartpole, observe_state),
    "quarl_bench.environments.hidden_velocities:CartPoleNoVel-v1": Dynamics(advance_cartpole, observe_places),
    "Acrobot-v1": Dynamics(advance_acrobot, observe_acrobot),
    "MountainCar-v0": Dynamics(advance_mountaincar, observe_state),
    "MountainCarContinuous-v0": Dynamics(advance_mountaincar_continuous, observe_state),
    "Pendulum-v1": Dynamics(advance_pendulum, observe_pendulum),
}
