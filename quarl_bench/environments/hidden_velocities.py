"""CartPole without its velocities: only who remembers where cart and pole were can balance it.

As rl-baselines3-zoo hides them, under its name: zeros stand in their places. Importing this module registers
`CartPoleNoVel-v1`.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from numpy.typing import NDArray

from quarl_bench.environments.classic_control import PLACES

STEPS = 500  # of an episode, as of CartPole-v1


class HiddenVelocities(gymnasium.ObservationWrapper[NDArray[np.float32], Any, NDArray[np.float32]]):
    """Observation (4,) of CartPole: metres, 0, radians, 0; everything else is CartPole's own."""

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """The two places, and zeros."""
        return observation * PLACES


def make(**options: Any) -> gymnasium.Env[Any, Any]:
    """The task as Gymnasium makes it; `render_mode` is all that may be asked."""
    return HiddenVelocities(CartPoleEnv(**options))


gymnasium.register("CartPoleNoVel-v1", entry_point=f"{__name__}:{make.__name__}", max_episode_steps=STEPS)
