"""Observations and actions of other spaces than a vector or an image, as a policy has them.

Discrete and MultiDiscrete observations become ones and zeros, a Dict or a Tuple the parts behind one another, as
Gymnasium flattens them. stable-baselines3 gives its networks the same numbers. Actions count from 0 and are one index
or one vector.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation

Bare = gymnasium.Env[Any, Any]
AnySpace = spaces.Space[Any]


def encode_observations(space: AnySpace) -> AnySpace:
    """The space that a policy observes: flat for what is neither vector nor image, `space` itself where that is none.

    A sequence, a graph and a text have no flat form of one size.
    """
    return space if isinstance(space, spaces.Box) or not space.is_np_flattenable else spaces.flatten_space(space)


def encode_actions(space: AnySpace) -> AnySpace:
    """The space that a policy acts in: indices from 0, or one vector; `space` itself where that is so already."""
    if isinstance(space, spaces.Discrete) and space.start != 0:
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and (len(space.shape) != 1 or space.start.any()):
        return spaces.MultiDiscrete(space.nvec.reshape(-1))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) != 1:
        return spaces.MultiBinary(int(np.prod(space.shape)))
    if isinstance(space, spaces.Box) and len(space.shape) != 1:
        return spaces.Box(space.low.reshape(-1), space.high.reshape(-1), dtype=space.dtype.type)
    return space


def list_choices(space: AnySpace) -> tuple[int, ...] | None:
    """Among how many actions each choice of a policy's space is, a bit being one among two; None of real numbers."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(int, space.nvec.reshape(-1)))
    if isinstance(space, spaces.MultiBinary):
        return (2,) * int(np.prod(space.shape))
    return None


def encode(bare: Bare) -> Bare:
    """`bare` with the spaces of a policy."""
    if encode_observations(bare.observation_space) is not bare.observation_space:
        bare = FlattenObservation(bare)
    return bare if encode_actions(bare.action_space) is bare.action_space else PlainActions(bare)


class PlainActions(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes indices from 0 where the environment's begin elsewhere, and vectors where it wants another shape."""

    def __init__(self, environment: Bare) -> None:
        super().__init__(environment)
        self.action_space = encode_actions(environment.action_space)

    def action(self, action: Any) -> Any:
        """The environment's own action."""
        space = self.env.action_space
        if isinstance(space, spaces.Discrete):
            return int(action) + int(space.start)
        if isinstance(space, spaces.MultiDiscrete):
            return np.reshape(action, space.shape) + space.start
        return np.reshape(action, space.shape or ())
