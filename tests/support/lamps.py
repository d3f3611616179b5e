"""An environment whose observations are an image, a vector and an index, each of which says something."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Lamps(gymnasium.Env[Any, Any]):
    """On which side is the light? Every second step the image shows it, and in the others the vector tells.

    The image is (height, width, channels). An episode has ten steps, each of a new side; a right answer is worth 1.
    """

    max_episode_steps = 10

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "camera": spaces.Box(0, 255, (36, 36, 3), np.uint8),
                "hint": spaces.Box(-1, 1, (2,), np.float32),
                "phase": spaces.Discrete(2),
            }
        )
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.number = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.side)
        self.number += 1
        return self.show(), reward, False, False, {}

    def show(self) -> dict[str, Any]:
        self.side, phase = int(self.np_random.integers(2)), self.number % 2
        camera = self.np_random.integers(0, 60, (36, 36, 3), dtype=np.uint8)
        hint = self.np_random.uniform(-0.1, 0.1, 2).astype(np.float32)
        if phase:
            hint[self.side] += 0.9
        else:
            camera[8:28, 18 * self.side : 18 * self.side + 18, 1] += 180
        return {"camera": camera, "hint": hint, "phase": phase}
