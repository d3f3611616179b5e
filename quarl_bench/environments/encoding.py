"""Observations and actions of other spaces than a vector or an image, as a policy has them.

Discrete and MultiDiscrete observations become ones and zeros, a Dict or a Tuple the parts behind one another, as
Gymnasium flattens them. Images that are parts of a Dict come channel-first. stable-baselines3 gives its networks the
same numbers. Actions count from 0 and are one index or one vector.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TransformObservation

from quarl_bench.environments.images import is_channels_first, is_image_space

Bare = gymnasium.Env[Any, Any]
AnySpace = spaces.Space[Any]


def encode_observations(space: AnySpace) -> AnySpace:
    """The space that a policy observes: flat for what is neither vector nor image, `space` itself where that is none.

    A sequence, a graph and a text have no flat form of one size.
    """
    if isinstance(space, spaces.Box) or not space.is_np_flattenable:
        return space
    return spaces.flatten_space(put_channels_first(space))


def put_channels_first(space: AnySpace) -> AnySpace:
    """A Dict with its images as stable-baselines3 turns them; `space` itself where none is to be turned."""
    names = _list_turned(space)
    if not isinstance(space, spaces.Dict) or not names:
        return space
    turned = {name: _turn_space(part) if name in names else part for name, part in space.items()}
    return spaces.Dict(list(turned.items()))  # of a list the order is kept


def _list_turned(space: AnySpace) -> tuple[str, ...]:
    """The parts of a Dict that are images whose channels stand last."""
    parts = space.items() if isinstance(space, spaces.Dict) else ()
    return tuple(
        name
        for name, part in parts
        if isinstance(part, spaces.Box) and is_image_space(part) and not is_channels_first(part)
    )


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
        names = _list_turned(bare.observation_space)
        if names:
            space = put_channels_first(bare.observation_space)
            bare = TransformObservation(bare, lambda seen: seen | {name: _turn(seen[name]) for name in names}, space)
        bare = FlattenObservation(bare)
    return bare if encode_actions(bare.action_space) is bare.action_space else PlainActions(bare)


def _turn_space(image: Any) -> AnySpace:
    height, width, channels = image.shape
    return spaces.Box(0, 255, (channels, height, width), image.dtype.type)


def _turn(image: Any) -> Any:
    return np.moveaxis(image, -1, 0)


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
