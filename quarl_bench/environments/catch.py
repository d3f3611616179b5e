"""Catch: a ball falls, a paddle of one cell moves below it. Pixels that NatureCNN accepts, learned in minutes.

After the task of Mnih et al., Recurrent Models of Visual Attention (2014), with straight falls and ten balls in an
episode. The drawing shows the whole state. Importing this module registers `Catch-v0`.
"""

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

CELLS = 9  # rows, and columns
PIXELS = 4  # of a cell's side: 36 x 36, the smallest image on which NatureCNN's third convolution has a place
BALLS = 10  # of an episode
WHITE = 255
Images = NDArray[np.uint8]


class Catch(gymnasium.Env[Images, np.int64]):
    """Observation (1, 36, 36) uint8; actions left, stay, right; reward 1 for a ball that is caught.

    Every ball can be caught: it falls as many rows as the paddle may be columns away.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as Gymnasium writes it)
    observation_space = gymnasium.spaces.Box(0, WHITE, (1, CELLS * PIXELS, CELLS * PIXELS), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Images, dict[str, Any]]:
        """The paddle stands anywhere; the first ball is in the uppermost row."""
        super().reset(seed=seed, options=options)
        self._fallen = 0
        self._paddle = int(self.np_random.integers(CELLS))
        self._drop()
        return self._draw(), {}

    def step(self, action: np.int64) -> tuple[Images, float, bool, bool, dict[str, Any]]:
        """The paddle moves by a column at most, then the ball falls by a row."""
        self._paddle = min(max(self._paddle + int(action) - 1, 0), CELLS - 1)
        self._row += 1
        landed = self._row == CELLS - 1
        reward = float(landed and self._column == self._paddle)
        self._fallen += landed
        over = self._fallen == BALLS
        if landed and not over:
            self._drop()
        return self._draw(), reward, over, False, {}

    def render(self) -> Images:
        """The observation in three equal colours (36, 36, 3)."""
        return self._draw()[0, :, :, None].repeat(3, axis=2)

    def _drop(self) -> None:
        self._row, self._column = 0, int(self.np_random.integers(CELLS))

    def _draw(self) -> Images:
        image = np.zeros((1, CELLS * PIXELS, CELLS * PIXELS), np.uint8)
        for row, column in ((self._row, self._column), (CELLS - 1, self._paddle)):
            top, left = row * PIXELS, column * PIXELS
            image[0, top : top + PIXELS, left : left + PIXELS] = WHITE
        return image


gymnasium.register("Catch-v0", entry_point=f"{__name__}:{Catch.__name__}", max_episode_steps=BALLS * (CELLS - 1))
