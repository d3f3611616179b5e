"""Which observations are images, as stable-baselines3 decides it: the policies it trained were built by that rule."""

from typing import Any

import numpy as np
from gymnasium import spaces


def is_image_space(space: spaces.Space[Any]) -> bool:
    """Three axes of uint8 from 0 to 255."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 3 or space.dtype != np.uint8:
        return False
    return not (np.any(space.low != 0) or np.any(space.high != 255))


def is_channels_first(space: spaces.Box) -> bool:
    """The channels are the smallest axis of an image; the first one where two are alike."""
    return int(np.argmin(space.shape)) == 0
