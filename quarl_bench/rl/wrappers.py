"""What stands between an environment and the evaluation loop: the time feature, and silence."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import SpecError

STDOUT, STDERR = 1, 2


class TimeFeature(gymnasium.Wrapper[NDArray[Any], Any, NDArray[Any], Any]):
    """Appends the remaining time, 1 - step / limit, to vector observations, as rl-zoo's agents were trained."""

    def __init__(self, environment: gymnasium.Env[Any, Any], limit: int) -> None:
        super().__init__(environment)
        space = environment.observation_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise SpecError(f"a time feature needs observations in a vector, not {space}")
        low, high = (np.append(bound, end).astype(space.dtype) for bound, end in ((space.low, 0), (space.high, 1)))
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=space.dtype.type)
        self._dtype = space.dtype
        self._limit = limit
        self._step = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[NDArray[Any], dict[str, Any]]:
        """All of the time remains."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._step = 0
        return self._append(observation), info

    def step(self, action: Any) -> tuple[NDArray[Any], Any, bool, bool, dict[str, Any]]:
        """One step less."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._step += 1
        return self._append(observation), reward, terminated, truncated, info

    def _append(self, observation: NDArray[Any]) -> NDArray[Any]:
        return np.append(observation, np.array(1 - self._step / self._limit, self._dtype))


class QuietReset(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose `reset` prints from C code (Bullet, when it connects)."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Without a word."""
        with silence(STDOUT):
            return self.env.reset(seed=seed, options=options)


@contextlib.contextmanager
def silence(*streams: int) -> Iterator[None]:
    """Keep away what is written to these file descriptors, by C code above all."""
    _flush()
    saved = [os.dup(stream) for stream in streams]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream in streams:
            os.dup2(nowhere, stream)
        yield
    finally:
        _flush()
        for stream, copy in zip(streams, saved, strict=True):
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)


def _flush() -> None:
    """C's buffers and Python's."""
    ctypes.CDLL(None).fflush(None)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
