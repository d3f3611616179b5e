"""Bullet's robots with the same physics and arithmetic, asked with less Python, that begin and reset without a word.

Half of a step goes into finding pybullet's functions and into asking links, joints, motors and feet one by one, and
half of the rest into what a robot that walks makes of the answers. Most of what a world costs is its connection, which
is good for another world: Bullet's reset of a simulation leaves nothing of the one before.
"""

import atexit
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.wrappers import STDOUT, silence
from quarl_bench.errors import PolicyError

ROBOTS, TASKS = "WalkerBase", "WalkerBaseBulletEnv"  # pybullet_envs_gymnasium's classes of what walks
FURTHEST = 5  # a walker's observation is clipped to +- that
NEAR = float(np.float32(0.99))  # a joint further from its middle than this share of the way is at its limit
ANY_LINK = -2  # Bullet's word for it
KEPT = 4  # connections without a world, 29 MB each
MOST = 128  # parts whose places NumPy adds up in one block
_IDLE: list[Any] = []  # connections of this process whose worlds are closed
atexit.register(_IDLE.clear)  # a client that dies later complains


class FastBullet(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Bullet robot; Bullet prints from C code when it connects, and nothing of that is seen."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        self._take_step = environment.step

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Without a word; the robot's parts are there, or new, only behind this."""
        task: Any = self.env.unwrapped
        with silence(STDOUT):
            if _IDLE and _shares(task) and task.scene is None and task.physicsClientId < 0:
                _connect(task, _IDLE.pop())
            first = self.env.reset(seed=seed, options=options)
        if _owns(task.robot, "calc_state") != ROBOTS or len(task.robot.parts) > MOST:
            _Body(task.robot)
            return first
        walker = _Walker(task.robot)
        if _owns(self.env, "step") == TASKS and not task.scene.multiplayer:
            self._take_step = partial(walker.take_step, task)
        return first

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The next state, its reward, and whether the robot has fallen."""
        return self._take_step(action)

    def close(self) -> None:
        """Close the world; its connection may go on to the next one."""
        task: Any = self.env.unwrapped
        if _shares(task) and task.physicsClientId >= 0 and len(_IDLE) < KEPT:
            _IDLE.append(task._p)  # noqa: SLF001 (its name for the client)
            task.physicsClientId = -1  # so that it does not disconnect
        super().close()


class _Body:
    """A robot's links, joints and motors, each of which are asked or commanded at once."""

    def __init__(self, robot: Any) -> None:
        client, joints = robot._p, robot.ordered_joints  # noqa: SLF001 (its name for the client)
        self.client = client
        for name in ("getContactPoints", "getLinkState", "stepSimulation"):
            setattr(client, name, getattr(client, name))  # what a client looks up at every call
        body = joints[0].bodies[joints[0].bodyIndex]
        places = [joint.jointIndex for joint in joints]
        self.linked = [part for part in robot.parts.values() if part.bodyPartIndex >= 0]  # others are a body's base
        self._ask_links = partial(client.getLinkStates, body, [part.bodyPartIndex for part in self.linked])
        self._ask_joints = partial(client.getJointStates, body, places)
        self._ask_contacts = partial(client.getContactPoints, body, -1, ANY_LINK, -1)  # with what is a body's base
        self._command = partial(client.setJointMotorControlArray, body, places, client.TORQUE_CONTROL)
        self._powers = [robot.power * joint.power_coef for joint in joints]
        self._calculate = partial(type(robot).calc_state, robot)
        for place, part in enumerate(self.linked):
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
        shares = action.tolist()
        if not all(map(math.isfinite, shares)):
            raise PolicyError(f"the action {action} is not finite; no motor can do that")
        clipped = [share if -1.0 <= share <= 1.0 else math.copysign(1.0, share) for share in shares]
        self._command(forces=[power * share for power, share in zip(self._powers, clipped, strict=True)])

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


def _shares(task: Any) -> bool:
    """Whether a task makes its world as the library's walkers do, out of sight."""
    return task.render_mode is None and _owns(task, "reset") == TASKS


def _connect(task: Any, client: Any) -> None:
    """Give a task that has no world yet a connection that had one, with what the library says to a new one."""
    client.resetSimulation()
    client.setPhysicsEngineParameter(deterministicOverlappingPairs=1)
    task._p, task.physicsClientId, task.ownsPhysicsClient = client, client._client, True  # noqa: SLF001 (their names)


def _owns(thing: Any, method: str) -> str:
    """The name of the class from which `thing` has the method."""
    return next(kind.__name__ for kind in type(thing).__mro__ if method in vars(kind))


class _Walker(_Body):
    """A robot that walks, with the arithmetic of its `calc_state`, and of its task's `step`, each once.

    Arrays of a few numbers cost more than the numbers, and are where NumPy rounds in its own way: sines, arctangents,
    products, and all that is float32.
    """

    def __init__(self, robot: Any) -> None:
        super().__init__(robot)
        joints, ends = robot.ordered_joints, 8 + 2 * len(robot.ordered_joints)
        self._robot = robot
        found = [self._find(part) for part in robot.parts.values()]
        self._others = [(place, part) for place, part in enumerate(found) if not isinstance(part, int)]
        self._feet = [foot.bodyPartIndex for foot in robot.feet]
        self._limits = [(joint.lowerLimit, joint.upperLimit - joint.lowerLimit) for joint in joints]
        self._shares, self._speeds = slice(8, ends, 2), slice(9, ends, 2)
        width = ends + len(self._feet)
        self._least, self._most = (np.full(width, bound, np.float32) for bound in (-FURTHEST, FURTHEST))
        self._turn, self._way = np.eye(3), np.empty(2)

    def calc_state(self) -> NDArray[np.float32]:
        """Height, heading, velocity and attitude of the body, then joints, then feet: float32 (observation,)."""
        robot, turn = self._robot, self._turn
        self.links = self._ask_links()
        joints = self._ask_joints()
        self._locate()
        r, p, yaw = robot.body_rpy
        z = robot.body_xyz[2]
        if robot.initial_z is None:
            robot.initial_z = np.float64(z)
        angles = np.array((robot.walk_target_theta - yaw, -yaw))
        (side, sine), (ahead, cosine) = np.sin(angles).tolist(), np.cos(angles).tolist()
        turn[0, 0] = turn[1, 1] = cosine
        turn[0, 1], turn[1, 0] = -sine, sine
        vx, vy, vz = turn.dot(robot.robot_body.speed()).tolist()
        numbers = [z - robot.initial_z, side, ahead, 0.3 * vx, 0.3 * vy, 0.3 * vz, r, p]
        for joint, (low, span) in zip(joints, self._limits, strict=True):
            numbers += (2 * (joint[0] - low) / span - 1.0, 0.1 * joint[1])
        numbers += robot.feet_contact.tolist()
        state = np.array(numbers, np.float32)
        robot.joint_speeds = state[self._speeds]
        seen: NDArray[np.float32] = np.minimum(np.maximum(state, self._least), self._most)
        self._seen = seen.tolist()
        robot.joints_at_limit = sum([share > NEAR or share < -NEAR for share in self._seen[self._shares]])
        return seen

    def take_step(self, task: Any, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the robot's task: what it sees, its reward, whether it has fallen."""
        robot = self._robot
        self.apply_action(action)
        task.scene.global_step()
        state = self.calc_state()
        alive = float(robot.alive_bonus(state[0] + robot.initial_z, robot.body_rpy[1]))
        task._alive = alive  # noqa: SLF001 (its name for what `_isDone` may read)
        before, task.potential = task.potential, robot.calc_potential()
        touching = {contact[3] for contact in self._ask_contacts() if (contact[2], contact[4]) in task.ground_ids}
        robot.feet_contact[:] = [foot in touching for foot in self._feet]
        electricity = task.electricity_cost * _average(np.abs(action * robot.joint_speeds))
        electricity += task.stall_torque_cost * _average(np.square(action))
        bent = float(task.joints_at_limit_cost * robot.joints_at_limit)
        reward = sum([alive, float(task.potential - before), electricity, bent, 0.0])
        done = task._isDone() or math.isnan(sum(self._seen))  # noqa: SLF001 (a cheetah never is)
        return state, reward, bool(done), False, {}

    def _find(self, part: Any) -> int | Callable[[], Any]:
        """Where a part is to be found: its place among the links, what asks for it, or where it stays."""
        if part in self.linked:
            return self.linked.index(part)
        weight, *_ = self.client.getDynamicsInfo(part.bodies[part.bodyIndex], -1)
        stays = tuple(part.bp_pose.xyz())
        return part.bp_pose.xyz if weight else lambda: stays

    def _locate(self) -> None:
        """Where the body is, and its target from there, as attributes of the robot."""
        robot = self._robot
        pose = robot.robot_body.pose()
        places = [link[0] for link in self.links]
        for place, ask in self._others:
            places.insert(place, ask())
        count, real = len(places), pose.xyz()
        x, y = add_up([place[0] for place in places]) / count, add_up([place[1] for place in places]) / count
        robot.body_xyz, robot.body_real_xyz, robot.body_rpy = (x, y, real[2]), real, pose.rpy()
        self._way[:] = robot.walk_target_y - y, robot.walk_target_x - x
        robot.walk_target_theta = float(np.arctan2(*self._way))
        robot.walk_target_dist = math.sqrt(self._way.dot(self._way))


def add_up(numbers: Sequence[float]) -> float:
    """The sum of up to `MOST` numbers in NumPy's order: every eighth of them, these sums in pairs, then the rest."""
    if len(numbers) < 8:
        return reduce(add, numbers)
    whole = len(numbers) // 8 * 8
    lanes = numbers[:8]
    for begin in range(8, whole, 8):
        lanes = list(map(add, lanes, numbers[begin : begin + 8]))
    a, b, c, d, e, f, g, h = lanes
    return reduce(add, numbers[whole:], ((a + b) + (c + d)) + ((e + f) + (g + h)))


def _average(numbers: NDArray[Any]) -> float:
    """`numbers.mean()`: summed in their own precision, divided in double precision, rounded to their own."""
    return float(numbers.dtype.type(float(np.add.reduce(numbers)) / len(numbers)))
