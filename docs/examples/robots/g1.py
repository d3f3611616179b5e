"""A Unitree G1 that is told how fast to walk: 50 decisions a second for ten seconds, on flat ground.

The robot's MJCF is Unitree's; README.md says where to get it. This file is ours, written from what its policy reads:
observation and action are those of that policy.
"""

from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

STEP, CONTROL = 0.002, 0.02  # seconds of a step of the simulation, and of an action
STIFFNESS = np.tile([100.0, 100, 100, 150, 40, 40], 2)  # N m/rad of the joints of both legs
DAMPING = np.tile([2.0, 2, 2, 4, 2, 2], 2)  # N m s/rad
HOME = np.tile([-0.1, 0.0, 0.0, 0.3, -0.2, 0.0], 2)  # rad
SCALE = 0.25  # radians of a joint's target for an action of 1
SPEEDS, SPIN, COMMAND = 0.05, 0.25, np.array([2.0, 2.0, 0.25])  # factors of what is observed
PERIOD = 0.8  # seconds of two steps of the gait
FALLEN = 0.5  # metres of the base's height
LARGEST = 10.0  # of an action; its policy bounds none, and keeps within 4
WIDTH = 0.25  # of tracking: exp(-error^2 / WIDTH), m^2/s^2 and rad^2/s^2
FASTEST = np.array([0.8, 0.2, 0.3])  # of commands: forward m/s, sideways m/s, yaw rad/s
SLOWEST = np.array([0.2, -0.2, -0.3])


class G1(gymnasium.Env):
    """Observation (47,): rotation, gravity, command, joints, their speeds, the last action, and the gait's phase (2,).

    Reward of a step: 0.02 s times how well the command is kept, 2/3 for the velocity and 1/3 for the yaw rate; ten
    seconds kept perfectly return 10. An episode ends with a fall.
    """

    max_episode_steps = 500

    def __init__(self, model: str = "g1/scene.xml", noise: float = 0.02) -> None:
        """`model`: path of the MJCF; `noise`: SD of joints (rad) and their speeds (rad/s) at the start."""
        if not Path(model).exists():
            raise FileNotFoundError(f"{model}: no MJCF of the G1 there; README.md of this example says where to get it")
        self._model = mujoco.MjModel.from_xml_path(model)
        self._model.opt.timestep = STEP
        self._data, self._noise = mujoco.MjData(self._model), noise
        self._action, self._command, self._steps = np.zeros(12), np.zeros(3), 0
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (47,), np.float32)
        self.action_space = gymnasium.spaces.Box(-LARGEST, LARGEST, (12,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Stand in the model's own pose, with noise, and draw a command; there are no options."""
        del options
        super().reset(seed=seed)
        mujoco.mj_resetData(self._model, self._data)
        self._data.qpos[7:] += self.np_random.normal(0, self._noise, 12)
        self._data.qvel[6:] += self.np_random.normal(0, self._noise, 12)
        self._command = self.np_random.uniform(SLOWEST, FASTEST)
        self._action, self._steps = np.zeros(12), 0
        mujoco.mj_forward(self._model, self._data)
        return self._observe(), {"command": self._command}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Pull the joints towards their targets for 20 ms."""
        self._action = np.asarray(action, dtype=np.float64)
        target = HOME + SCALE * self._action
        for _ in range(round(CONTROL / STEP)):
            self._data.ctrl[:] = STIFFNESS * (target - self._data.qpos[7:]) - DAMPING * self._data.qvel[6:]
            mujoco.mj_step(self._model, self._data)
        self._steps += 1
        slip = (self._find_axes().T @ self._data.qvel[:3])[:2] - self._command[:2]
        spin = self._data.qvel[5] - self._command[2]
        kept = 2 * np.exp(-(slip @ slip) / WIDTH) + np.exp(-(spin**2) / WIDTH)
        return self._observe(), CONTROL * float(kept) / 3, bool(self._data.qpos[2] < FALLEN), False, {}

    def _observe(self) -> NDArray[np.float32]:
        joints, speeds = self._data.qpos[7:] - HOME, self._data.qvel[6:] * SPEEDS
        gravity = self._find_axes().T @ np.array([0.0, 0.0, -1.0])
        angle = 2 * np.pi * (self._steps * CONTROL % PERIOD) / PERIOD
        body = self._data.qvel[3:6] * SPIN, gravity, self._command * COMMAND
        gait = np.sin(angle), np.cos(angle)
        return np.concatenate([*body, joints, speeds, self._action, gait]).astype(np.float32)

    def _find_axes(self) -> NDArray[np.float64]:
        """The axes of the base, as columns."""
        axes = np.zeros(9)
        mujoco.mju_quat2Mat(axes, self._data.qpos[3:7])
        return axes.reshape(3, 3)
