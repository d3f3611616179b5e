"""Bullet's robots with the same physics and arithmetic, asked with less Python, that reset without a word.

Half of a step goes into finding pybullet's functions and into asking links, joints and motors one by one, and half of
the rest into what a robot that walks makes of the answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.wrappers import STDOUT, silence
from quarl_bench.errors import PolicyError

ROBOTS, TASKS = "WalkerBase", "WalkerBaseBulletEnv"  # pybullet_envs_gymnasium's classes of what walks
FURTHEST = 5  # a walker's observation is clipped to +- that


class FastBullet(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A Bullet robot; Bullet prints from C code when it connects, and nothing of that is seen."""

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        super().__init__(environment)
        self._take_step = environment.step

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Without a word; the robot's parts are there, or new, only behind this."""
        with silence(STDOUT):
            first = self.env.reset(seed=seed, options=options)
        task: Any = self.env.unwrapped
        if _owns(task.robot, "calc_state") != ROBOTS:
            _Body(task.robot)
            return first
        walker = _Walker(task.robot)
        if _owns(self.env, "step") == TASKS and not task.scene.multiplayer:
            self._take_step = partial(walker.take_step, task)
        return first

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """The next state, its reward, and whether the robot has fallen."""
        return self._take_step(action)


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


def _owns(thing: Any, method: str) -> str:
    """The name of the class from which `thing` has the method."""
    return next(kind.__name__ for kind in type(thing).__mro__ if method in vars(kind))


class _Walker(_Body):
    """A robot that walks, with the arithmetic of its `calc_state`, and of its task's `step`, on arrays: each once."""

    def __init__(self, robot: Any) -> None:
        super().__init__(robot)
        self._robot = robot
        # Where each part is to be found: its place among the links, what asks for it, or where it stays.
        self._parts = [self._find(part) for part in robot.parts.values()]
        joints = robot.ordered_joints
        self._low = np.array([joint.lowerLimit for joint in joints])
        self._span = np.array([joint.upperLimit for joint in joints]) - self._low

    def calc_state(self) -> NDArray[np.float32]:
        """Height, heading, velocity and attitude of the body, then joints, then feet: float32 (observation,)."""
        robot = self._robot
        self.links = self._ask_links()
        joints = np.array([joint[:2] for joint in self._ask_joints()])
        moved = np.empty(2 * len(joints), np.float32)
        moved[0::2] = 2 * (joints[:, 0] - self._low) / self._span - 1.0
        moved[1::2] = 0.1 * joints[:, 1]
        robot.joint_speeds = moved[1::2]
        robot.joints_at_limit = np.count_nonzero(np.abs(moved[0::2]) > 0.99)
        self._locate()
        r, p, yaw = robot.body_rpy
        z = robot.body_xyz[2]
        if robot.initial_z is None:
            robot.initial_z = z
        angle = robot.walk_target_theta - yaw
        cosine, sine = np.cos(-yaw), np.sin(-yaw)
        turn = np.array([[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]])
        vx, vy, vz = np.dot(turn, robot.robot_body.speed()).tolist()
        body = (z - robot.initial_z, np.sin(angle), np.cos(angle), 0.3 * vx, 0.3 * vy, 0.3 * vz, r, p)
        state: NDArray[np.float32] = np.concatenate([np.array(body, np.float32), moved, robot.feet_contact])
        return np.minimum(np.maximum(state, -FURTHEST), FURTHEST)

    def take_step(self, task: Any, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """A step of the robot's task: what it sees, its reward, whether it has fallen."""
        robot = self._robot
        self.apply_action(action)
        task.scene.global_step()
        state = self.calc_state()
        alive = float(robot.alive_bonus(state[0] + robot.initial_z, robot.body_rpy[1]))
        task._alive = alive  # noqa: SLF001 (its name for what `_isDone` may read)
        before, task.potential = task.potential, robot.calc_potential()
        for place, foot in enumerate(robot.feet):
            touched = {(contact[2], contact[4]) for contact in foot.contact_list()}
            robot.feet_contact[place] = 0.0 if touched.isdisjoint(task.ground_ids) else 1.0
        electricity = task.electricity_cost * _average(np.abs(action * robot.joint_speeds))
        electricity += task.stall_torque_cost * _average(np.square(action))
        bent = float(task.joints_at_limit_cost * robot.joints_at_limit)
        reward = sum([alive, float(task.potential - before), electricity, bent, 0.0])
        done = task._isDone() or not np.isfinite(state).all()  # noqa: SLF001 (a cheetah never is)
        return state, reward, bool(done), False, {}

    def _find(self, part: Any) -> int | Callable[[], Any]:
        if part in self.linked:
            return self.linked.index(part)
        weight, *_ = self.client.getDynamicsInfo(part.bodies[part.bodyIndex], -1)
        stays = part.bp_pose.xyz()
        return part.bp_pose.xyz if weight else lambda: stays

    def _locate(self) -> None:
        """Where the body is, and its target from there, as attributes of the robot."""
        robot = self._robot
        pose = robot.robot_body.pose()
        links = self.links
        places = np.array([links[part][0] if isinstance(part, int) else part() for part in self._parts])
        count, real = len(places), pose.xyz()
        x, y = np.add.reduce(places[:, 0]) / count, np.add.reduce(places[:, 1]) / count
        robot.body_xyz, robot.body_real_xyz, robot.body_rpy = (x, y, real[2]), real, pose.rpy()
        way = np.array([robot.walk_target_y - y, robot.walk_target_x - x])
        robot.walk_target_theta = np.arctan2(way[0], way[1])
        robot.walk_target_dist = np.sqrt(way.dot(way))


def _average(numbers: NDArray[Any]) -> float:
    """`numbers.mean()`: summed in their own precision, divided in double precision, rounded to their own."""
    return float(numbers.dtype.type(float(np.add.reduce(numbers)) / len(numbers)))
