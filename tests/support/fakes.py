"""An environment of given spaces."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

PIXELS = spaces.Box(0, 255, (84, 84, 1), np.uint8)


class Fake(gymnasium.Env[Any, Any]):
    """Spaces without a world."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}
