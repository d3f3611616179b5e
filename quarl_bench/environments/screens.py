"""The frame that an agent sees of an emulator's last two screens: their maximum, grey, 84x84, bit for bit as OpenCV.

From one frame to the next a ball moves and a paddle. Screens are kept as the emulator has them, one number of a color
per pixel, and only bands with pixels that have changed are made anew: five rows of a screen become two of a frame, and
no others do. Which color a number is the emulator does not tell; where a new one shows up, the screen is read in RGB.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 84
COLORS = 256
BAND, MADE = 5, 2  # rows of a screen, and of the frame, that belong together
Frames = NDArray[np.uint8]


class Screens:
    """The last two screens of one emulator, the older one first."""

    def __init__(self, emulator: Any, cv2: Any) -> None:
        self._emulator, self._cv2 = emulator, cv2
        self._palette = _Palette(cv2)
        self._palette.learn(emulator)
        self._now = emulator.getScreen()
        height, width = self._now.shape
        self._pixels = np.stack([self._now, self._now])
        self._bands = self._pixels.reshape(2, height // BAND, BAND, width)
        self._frame = np.zeros((SIDE // MADE, MADE, SIDE), dtype=np.uint8)
        self._changed = np.ones(height // BAND, dtype=np.bool_)  # bands, since the last frame
        # Pixels are compared eight at a time.
        self._words = self._now.reshape(-1).view(np.uint64)
        self._before = self._pixels.reshape(2, -1).view(np.uint64)
        self._count = len(self._words) // len(self._changed)  # of a band

    def take(self, place: int) -> None:
        """What the emulator shows now is the screen at `place`, 0 or 1."""
        self._emulator.getScreen(self._now)
        other = (self._words != self._before[place]).nonzero()[0]
        if not len(other):
            return
        self._changed[other // self._count] = True
        found = self._words[other]
        if not self._palette.known[found.view(np.uint8)].all():
            self._palette.learn(self._emulator)
        self._before[place][other] = found

    @property
    def last(self) -> Frames:
        """The newer screen in RGB, (210, 160, 3)."""
        screen: Frames = self._palette.rgb[self._pixels[1]]
        return screen

    @property
    def frame(self) -> Frames:
        """What an agent sees of both, (84, 84); the next frame takes its place."""
        bands = self._changed.nonzero()[0]
        if len(bands):
            older, newer = self._bands[:, bands].reshape(2, len(bands) * BAND, -1)
            grey = self._palette.mix(older, newer)
            made = self._cv2.resize(grey, (SIDE, len(bands) * MADE), interpolation=self._cv2.INTER_AREA)
            self._frame[bands] = made.reshape(-1, MADE, SIDE)
            self._changed[:] = False
        return self._frame.reshape(SIDE, SIDE)


class _Palette:
    """The colors that one emulator has shown, each in RGB."""

    def __init__(self, cv2: Any) -> None:
        self._cv2 = cv2
        self.known = np.zeros(COLORS, dtype=np.bool_)
        self.rgb = np.zeros((COLORS, 3), dtype=np.uint8)
        self._mixed = np.zeros((COLORS, COLORS), dtype=np.uint8)

    def learn(self, emulator: Any) -> None:
        """Those that `emulator` shows now."""
        shown, places = np.unique(emulator.getScreen(), return_index=True)
        self.known[shown] = True
        self.rgb[shown] = emulator.getScreenRGB().reshape(-1, 3)[places]
        brighter = np.maximum(self.rgb[shown, None], self.rgb)
        grey = self._cv2.cvtColor(brighter, self._cv2.COLOR_RGB2GRAY)
        self._mixed[shown], self._mixed[:, shown] = grey, grey.T

    def mix(self, older: Frames, newer: Frames) -> Frames:
        """The grey of what is brighter, in each part, of two screens' colors."""
        mixed: Frames = self._mixed.reshape(-1).take(np.left_shift(older, 8, dtype=np.uint16) | newer)
        return mixed
