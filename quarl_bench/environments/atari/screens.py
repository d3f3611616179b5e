"""The frame that an agent sees of an emulator's last two screens: their maximum, grey, 84x84, bit for bit as OpenCV.

From one frame to the next a ball moves and a paddle. Screens are kept as the emulator has them, one number of a color
per pixel, and only bands with pixels that have changed are made anew. Which color a number is the emulator does not
tell; where a new one shows up, the screen is read in RGB.
"""

from typing import Any

import numpy as np

from quarl_bench.environments.atari.bands import COLORS, Buffers, Bytes, begin_bands


class Screens:
    """The last two screens of one emulator, the older one first."""

    def __init__(self, emulator: Any, cv2: Any) -> None:
        self._emulator = emulator
        self._buffers = Buffers.allocate()
        self._palette = _Palette(self._buffers, cv2)
        self._palette.learn(emulator)
        emulator.getScreen(self._buffers.now)
        self._buffers.kept[:] = self._buffers.now
        self._bands = begin_bands(self._buffers, cv2)

    def take(self, place: int) -> None:
        """What the emulator shows now is the screen at `place`, 0 or 1."""
        self._emulator.getScreen(self._buffers.now)
        if not self._bands.take(place):
            self._palette.learn(self._emulator)

    @property
    def last(self) -> Bytes:
        """The newer screen in RGB, (210, 160, 3)."""
        screen: Bytes = self._palette.rgb[self._buffers.kept[1]]
        return screen

    @property
    def frame(self) -> Bytes:
        """What an agent sees of both, (84, 84); the next frame takes its place."""
        self._bands.make()
        return self._buffers.frame


class _Palette:
    """The colors that one emulator has shown, each in RGB, and mixed with each other."""

    def __init__(self, buffers: Buffers, cv2: Any) -> None:
        self._known, self._mixed, self._cv2 = buffers.known, buffers.mixed, cv2
        self.rgb = np.zeros((COLORS, 3), dtype=np.uint8)

    def learn(self, emulator: Any) -> None:
        """Those that `emulator` shows now."""
        shown, places = np.unique(emulator.getScreen(), return_index=True)
        self._known[shown] = True
        self.rgb[shown] = emulator.getScreenRGB().reshape(-1, 3)[places]
        brighter = np.maximum(self.rgb[shown, None], self.rgb)
        grey = self._cv2.cvtColor(brighter, self._cv2.COLOR_RGB2GRAY)
        self._mixed[shown], self._mixed[:, shown] = grey, grey.T
