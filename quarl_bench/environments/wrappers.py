"""What stands between an environment and the evaluation loop: the time feature, a missing limit, silence."""

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

LONGEST = 20_000  # steps of an episode of an environment that has no step limit
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
        """Start an episode; the share of time that remains is 1."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._step = 0
        return self._append(observation), info

    def step(self, action: Any) -> tuple[NDArray[Any], Any, bool, bool, dict[str, Any]]:
        """Take a step; the share of time that remains falls by one step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._step += 1
        return self._append(observation), reward, terminated, truncated, info

    def _append(self, observation: NDArray[Any]) -> NDArray[Any]:
        row = np.empty(len(observation) + 1, self._dtype)
        row[:-1], row[-1] = observation, 1 - self._step / self._limit
        return row


class Unlimited(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that has no step limit and is to end its episodes itself; SpecError where one does not end."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Count from 0 again."""
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step, which is one of `LONGEST` at most."""
        self._steps += 1
        if self._steps > LONGEST:
            name = self.spec.id if self.spec else type(self.unwrapped).__name__
            raise SpecError(
                f"environment {name} has no step limit, and an episode goes on after {LONGEST:,} steps; register it "
                "with max_episode_steps, or give its class an attribute of that name"
            )
        return self.env.step(action)


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
    """Flush what C and Python still hold for stdout and stderr, so that redirecting them loses no line."""
    ctypes.CDLL(None).fflush(None)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
