"""A Unitree Go1 that is told how fast to walk: 50 decisions a second for ten seconds, on flat ground.

The robot's MJCF is MuJoCo Playground's; README.md says where to get it. This file is ours, written from what its policy
reads: observation and action are those of that policy.
"""

from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from numpy.typing import NDArray

STEP, CONTROL = 0.004, 0.02  # seconds of a step of the simulation, and of an action
SCALE = 0.5  # radians of a joint's target for an action of 1
FALLEN = -0.3  # of the vertical part of gravity in the body's frame, -1 where it stands
WIDTH = 0.25  # of tracking: exp(-error^2 / WIDTH), m^2/s^2 and rad^2/s^2
FASTEST = np.array([1.0, 0.3, 0.5])  # of commands: forward m/s, sideways m/s, yaw rad/s
SLOWEST = np.array([0.3, -0.3, -0.5])


class Go1(gymnasium.Env):
    """Observation (48,): velocity, rotation, gravity, joints, their speeds, the last action, and the command (3,).

    Reward of a step: 0.02 s times how well the command is kept, 2/3 for the velocity and 1/3 for the yaw rate; ten
    seconds kept perfectly return 10. An episode ends with a fall.
    """

    max_episode_steps = 500

    def __init__(self, model: str = "go1/scene_mjx_feetonly_flat_terrain.xml", noise: float = 0.05) -> None:
        """`model`: path of the MJCF; `noise`: SD of joints (rad) and their speeds (rad/s) at the start."""
        if not Path(model).exists():
            raise FileNotFoundError(
                f"{model}: no MJCF of the Go1 there; README.md of this example says where to get it"
            )
        self._model = mujoco.MjModel.from_xml_path(model)
        self._model.opt.timestep = STEP
        self._data, self._noise = mujoco.MjData(self._model), noise
        self._site = self._model.site("imu").id
        self._home = np.array(self._model.keyframe("home").qpos[7:])
        self._action, self._command = np.zeros(12), np.zeros(3)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (48,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (12,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Stand at the keyframe, with noise, and draw a command; there are no options."""
        del options
        super().reset(seed=seed)
        mujoco.mj_resetDataKeyframe(self._model, self._data, self._model.keyframe("home").id)
        self._data.qpos[7:] += self.np_random.normal(0, self._noise, 12)
        self._data.qvel[6:] += self.np_random.normal(0, self._noise, 12)
        self._command = self.np_random.uniform(SLOWEST, FASTEST)
        self._action = np.zeros(12)
        mujoco.mj_forward(self._model, self._data)
        return self._observe(), {"command": self._command}

    def step(self, action: NDArray[Any]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Hold the joints' targets for 20 ms."""
        self._action = np.clip(np.asarray(action, dtype=np.float64), -1, 1)
        self._data.ctrl[:] = self._home + SCALE * self._action
        mujoco.mj_step(self._model, self._data, nstep=round(CONTROL / STEP))
        slip = self._read("local_linvel")[:2] - self._command[:2]
        spin = self._read("gyro")[2] - self._command[2]
        kept = 2 * np.exp(-(slip @ slip) / WIDTH) + np.exp(-(spin**2) / WIDTH)
        return self._observe(), CONTROL * float(kept) / 3, bool(self._find_gravity()[2] > FALLEN), False, {}

    def _observe(self) -> NDArray[np.float32]:
        joints, speeds = self._data.qpos[7:] - self._home, self._data.qvel[6:]
        body = self._read("local_linvel"), self._read("gyro"), self._find_gravity()
        return np.concatenate([*body, joints, speeds, self._action, self._command]).astype(np.float32)

    def _read(self, sensor: str) -> NDArray[np.float64]:
        return np.array(self._data.sensor(sensor).data)

    def _find_gravity(self) -> NDArray[np.float64]:
        """The direction of gravity in the frame of the body's sensor."""
        return np.asarray(self._data.site_xmat[self._site].reshape(3, 3).T @ np.array([0.0, 0.0, -1.0]))
