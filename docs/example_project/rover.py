"""A task and its controller: a rover on a plane is to stand on its dock, and to use little force on the way there."""

from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class Dock(gymnasium.Env[Floats, Floats]):
    """Observation: position and velocity relative to the dock (m, m/s). Action: force in [-1, 1] along both axes."""

    max_episode_steps = 60
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (4,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, distance: float = 3.0) -> None:
        """`distance` (m): how far away it begins at most, along both axes."""
        self.distance = distance

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, dict[str, Any]]:
        """Somewhere near the dock, at rest."""
        super().reset(seed=seed, options=options)
        position = self.np_random.uniform(-self.distance, self.distance, 2)
        self.state = np.concatenate([position, np.zeros(2)]).astype(np.float32)
        return self.state.copy(), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """A tenth of a second; the reward is 1 on the dock, less the further away."""
        position, velocity = self.state[:2], self.state[2:]
        velocity = velocity + np.float32(0.3) * action
        self.state = np.clip(np.concatenate([position + np.float32(0.1) * velocity, velocity]), -10.0, 10.0)
        reward = 1.0 / (1.0 + float(np.hypot(*self.state[:2]))) - 0.01 * float(np.abs(action).sum())
        return self.state.copy(), reward, False, False, {}


def controller() -> torch.nn.Module:
    """Proportional and derivative gains behind a hidden layer that passes both signs on: relu(x) - relu(-x) = x."""
    gains = torch.tensor([[-0.5, 0.0, -0.6, 0.0], [0.0, -0.5, 0.0, -0.6]])
    hidden, force = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
    with torch.no_grad():
        hidden.weight.copy_(torch.cat([gains, -gains]))
        hidden.bias.zero_()
        force.weight.copy_(torch.cat([torch.eye(2), -torch.eye(2)], dim=1))
        force.bias.zero_()
    return torch.nn.Sequential(hidden, torch.nn.ReLU(), force)
