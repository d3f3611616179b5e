"""Episodes that can be seen: those of the evaluation, step for step, with pictures."""

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.atari.games import SKIP
from quarl_bench.environments.registry import DMC, MUJOCO, Environment, Made, make_environment
from quarl_bench.errors import QuarlError, SpecError, first_line
from quarl_bench.evaluation.batches.episodes import Episodes, SteppedEpisodes
from quarl_bench.evaluation.batches.games import GameEpisodes

Picture = NDArray[np.uint8]
ARRAY, WINDOW = "rgb_array", "human"  # Gymnasium's names of what rendering gives
CHANNELS = (3, 4)  # RGB, with or without transparency
USUAL_RATE = 30.0  # steps a second, where an environment says nothing
GAME_RATE = 60.0 / SKIP
DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
REMEDY = "`quarl evaluate` plays it unseen"


class Scenes(Episodes, Protocol):
    """One episode per seed, each of which can be looked at."""

    rate: float  # steps a second at natural speed

    def render(self, index: int) -> Picture | None:
        """What episode `index` looks like now (height, width, 3), or None where a window shows it."""


def check_mode(environment: Environment, mode: str) -> None:
    """SpecError where windows are asked for and there can be none."""
    if mode == WINDOW and not _has_display():
        raise SpecError("no display to show a window on; write a file: --video play.gif")
    if mode == WINDOW and environment.atari:
        raise SpecError(f"environment {environment.id}: a game has no window here; write a file: --video play.gif")


def open_scenes(environment: Environment, seeds: Sequence[int], mode: str = ARRAY, *, masked: bool = False) -> Scenes:
    """Scenes of these environment seeds, with masks of actions if `masked`.

    SpecError where they cannot be rendered in this Gymnasium mode.
    """
    check_mode(environment, mode)
    if environment.atari:
        return RenderedGames(environment, seeds)
    return RenderedEpisodes(environment, seeds, mode, masked=masked)


class RenderedEpisodes(SteppedEpisodes):
    """In environments of their own, made for this mode."""

    def __init__(self, environment: Environment, seeds: Sequence[int], mode: str, *, masked: bool) -> None:
        super().__init__(environment, seeds, [_make_rendered(environment, mode) for _ in seeds], masked=masked)
        metadata: dict[str, Any] = self._environments[0].unwrapped.metadata
        modes = metadata.get("render_modes", ())
        if mode not in modes:
            self.close()
            known = ", ".join(str(name) for name in modes) or "none"
            raise SpecError(f"environment {environment.id} renders no {mode} (its render_modes: {known}); {REMEDY}")
        self.rate = float(metadata.get("render_fps") or USUAL_RATE)
        self._mode = mode

    def render(self, index: int) -> Picture | None:
        """A picture (height, width, 3); SpecError where there is none."""
        if self._mode == WINDOW:
            return None
        try:
            picture = np.asarray(self._environments[index].render())
        except QuarlError:
            raise
        except Exception as error:  # whatever a renderer raises, a missing OpenGL for one
            raise _refuse(self._environment, error) from error
        if picture.ndim != 3 or picture.shape[2] not in CHANNELS or picture.dtype != np.uint8:
            what = f"render() gave {picture.dtype} of shape {picture.shape}, not uint8 (height, width, 3)"
            raise SpecError(f"environment {self._environment.id}: {what}; {REMEDY}")
        return picture[:, :, :3]


class RenderedGames(GameEpisodes):
    """Atari: the emulator's screen, in colour."""

    rate = GAME_RATE

    def render(self, index: int) -> Picture:
        """The screen (210, 160, 3)."""
        return self._games[index].screen


def _make_rendered(environment: Environment, mode: str) -> Made:
    """In this mode. Without a display MuJoCo draws by EGL, unless the caller has chosen something else."""
    if environment.extra in (MUJOCO, DMC) and not _has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*not in the possible render_modes")  # what it can is asked below
            return make_environment(environment, render_mode=mode)
    except QuarlError as error:
        if not environment.custom:
            raise
        wanted = f"let it take render_mode={mode!r} and list it in metadata['render_modes']"  # it was made without one
        raise SpecError(f"environment {environment.id} cannot be rendered: {wanted}; {REMEDY}") from error
    except Exception as error:  # whatever a renderer raises where its library is missing
        raise _refuse(environment, error) from error


def _refuse(environment: Environment, error: Exception) -> SpecError:
    what = f"{type(error).__name__}: {first_line(error)}"
    return SpecError(f"environment {environment.id} cannot be rendered ({what}); {REMEDY}")


def _has_display() -> bool:
    return sys.platform != "linux" or any(os.environ.get(name) for name in DISPLAYS)
