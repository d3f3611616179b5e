"""Which rows of an emulator's screen have changed, and the part of a frame that they become: compiled, or in NumPy.

Five rows of a screen become two of a frame, and no others do: a band. Compiled code takes a tenth to a third of the
time, and is used where there is a compiler and it makes of drawn screens, bit for bit, what NumPy and OpenCV do.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import DeploymentError, StoreError
from quarl_bench.system.compiler import load_library

SIDE, COLORS = 84, 256
ROWS, MADE = 5, 2  # of a screen, and of the frame, that belong together
HEIGHT, WIDTH = 210, 160  # of a screen
BANDS = HEIGHT // ROWS
TAPS = 3  # pixels of a line of which one of the frame's is made, at most
SOURCE = "bands.c"
LEAST = 1e-3  # of a pixel, which OpenCV leaves out
DRAWN = 20  # screens on which compiled code is compared
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Buffers:
    """What bands are made of, and what they become; C reads and writes the same memory."""

    now: Bytes  # (HEIGHT, WIDTH): the screen as it is shown, a number of a color per pixel
    kept: Bytes  # (2, HEIGHT, WIDTH): the last two, the older one first
    changed: Bytes  # (BANDS,), since the last frame
    known: Bytes  # (COLORS,): whether a number's color is known
    mixed: Bytes  # (COLORS, COLORS): the grey of what is brighter of two colors
    frame: Bytes  # (SIDE, SIDE)

    @classmethod
    def allocate(cls) -> "Buffers":
        """Black screens, all of which have changed, in colors that nobody knows."""
        screens = np.zeros((3, HEIGHT, WIDTH), np.uint8)
        changed, known = np.ones(BANDS, np.uint8), np.zeros(COLORS, np.uint8)
        mixed, frame = np.zeros((COLORS, COLORS), np.uint8), np.zeros((SIDE, SIDE), np.uint8)
        return cls(screens[2], screens[:2], changed, known, mixed, frame)


class Bands(Protocol):
    """What is done with the buffers of one emulator."""

    def take(self, place: int) -> bool:
        """Keep what is shown now at `place`, 0 or 1; whether all its colors are known."""

    def make(self) -> None:
        """Make the frame of the kept screens anew in those bands that have changed."""


class ArrayBands:
    """In NumPy, and OpenCV for what shrinks."""

    def __init__(self, buffers: Buffers, cv2: Any) -> None:
        self._buffers, self._cv2 = buffers, cv2
        # Pixels are compared eight at a time.
        self._now = buffers.now.reshape(-1).view(np.uint64)
        self._kept = buffers.kept.reshape(2, -1).view(np.uint64)
        self._count = len(self._now) // BANDS

    def take(self, place: int) -> bool:
        """As the protocol says."""
        other = (self._now != self._kept[place]).nonzero()[0]
        found = self._now[other]
        self._kept[place][other] = found
        self._buffers.changed[other // self._count] = True
        return bool(self._buffers.known[found.view(np.uint8)].all())

    def make(self) -> None:
        """As the protocol says."""
        buffers = self._buffers
        bands = buffers.changed.nonzero()[0]
        if not len(bands):
            return
        older, newer = buffers.kept.reshape(2, BANDS, ROWS, WIDTH)[:, bands].reshape(2, -1, WIDTH)
        grey = buffers.mixed.reshape(-1).take(np.left_shift(older, 8, dtype=np.uint16) | newer)
        made = self._cv2.resize(grey, (SIDE, len(bands) * MADE), interpolation=self._cv2.INTER_AREA)
        buffers.frame.reshape(BANDS, MADE, SIDE)[bands] = made.reshape(-1, MADE, SIDE)
        buffers.changed[:] = False


class _Addresses(ctypes.Structure):
    """As bands.c has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("now", "older", "newer", "changed", "known", "mixed", "frame")),
        *((name, ctypes.c_void_p) for name in ("starts", "columns", "rows")),
        ("bands", ctypes.c_int64),
    ]


class CompiledBands:
    """By bands.c; DeploymentError where nothing compiles it, StoreError where the library cannot be kept."""

    def __init__(self, buffers: Buffers) -> None:
        starts, columns = share(WIDTH, SIDE)
        rows = np.zeros((MADE, ROWS), np.float32)
        for row, start, shares in zip(rows, *share(ROWS, MADE), strict=True):
            row[start : start + TAPS] = shares
        older, newer = buffers.kept
        changes = buffers.changed, buffers.known, buffers.mixed, buffers.frame
        self._held = buffers.now, older, newer, *changes, starts, np.ascontiguousarray(columns.T), rows
        self._addresses = ctypes.byref(_Addresses(*(array.ctypes.data for array in self._held), BANDS))
        library = load_library({SOURCE: (resources(__package__) / SOURCE).read_bytes()})
        self._take, self._make = library.quarl_take, library.quarl_make

    def take(self, place: int) -> bool:
        """As the protocol says."""
        return not self._take(self._addresses, place)

    def make(self) -> None:
        """As the protocol says."""
        self._make(self._addresses)


def share(pixels: int, made: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Of which pixels of a line each that is made consists as it shrinks by area: the first, and the `TAPS` shares."""
    scale = pixels / made
    starts, shares = np.zeros(made, np.int32), np.zeros((made, TAPS), np.float32)
    for place in range(made):
        begin, end = place * scale, (place + 1) * scale
        starts[place] = min(int(begin), pixels - TAPS)
        for tap, pixel in enumerate(range(starts[place], starts[place] + TAPS)):
            part = min(end, pixel + 1) - max(begin, pixel)
            shares[place, tap] = part / scale if part > LEAST else 0
    return starts, shares


def begin_bands(buffers: Buffers, cv2: Any) -> Bands:
    """The fastest way that is exact here."""
    return CompiledBands(buffers) if compiles(cv2) else ArrayBands(buffers, cv2)


@cache
def compiles(cv2: Any) -> bool:
    """Whether compiled code can be had, and makes of drawn screens what arrays do."""
    ours, theirs = Buffers.allocate(), Buffers.allocate()
    try:
        compiled = CompiledBands(ours)
    except (DeploymentError, StoreError, OSError):
        return False
    return draw_alike((compiled, ours), (ArrayBands(theirs, cv2), theirs))


def draw_alike(*ways: tuple[Bands, Buffers]) -> bool:
    """Whether two ways make the same of drawn screens, of which some rows change; one has a color that is unknown."""
    generator = np.random.default_rng(0)
    mixed = generator.integers(COLORS, size=(COLORS, COLORS))
    for _, buffers in ways:
        buffers.mixed[:], buffers.known[:-1] = mixed, True
    for drawn in range(DRAWN):
        last = drawn == DRAWN - 1
        screen = generator.integers(COLORS if last else COLORS - 1, size=(HEIGHT, WIDTH))
        rows = slice(*sorted(generator.integers(HEIGHT + 1, size=2))) if not last else slice(HEIGHT)
        found = []
        for bands, buffers in ways:
            buffers.now[rows] = screen[rows]
            known = bands.take(drawn // 2 % 2)
            bands.make()
            found.append((known, buffers.kept.tobytes(), buffers.frame.tobytes()))
        if len({*found}) > 1:
            return False
    return True
