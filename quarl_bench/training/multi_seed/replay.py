"""Transitions of many seeds, in files: a checkpoint only has to say how many rows there are."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import StoreError

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Batch:
    """Transitions (seeds, n, ...) of raw observations."""

    observations: torch.Tensor
    actions: torch.Tensor
    rewards: torch.Tensor  # (seeds, n, 1)
    terminated: torch.Tensor  # (seeds, n, 1), 1 where the episode ended in a terminal state
    next_observations: torch.Tensor


class SeedReplay:
    """A ring of `capacity` transitions per seed, mapped into memory from files in `folder`.

    Files grow as they are written. The system keeps what a killed process wrote; a row behind the checkpoint's count is
    written again. With `resume` the files have to be there, as they were: StoreError where one is not.
    """

    def __init__(
        self, folder: Path, seeds: int, capacity: int, observation: int, action: int, *, resume: bool = False
    ) -> None:
        self.capacity, self.count = capacity, 0  # rows written so far, beyond the capacity too
        widths = {"observations": observation, "next_observations": observation, "actions": action, "ends": 2}
        shapes = {folder / f"replay-{name}.f32": (seeds, capacity, width) for name, width in widths.items()}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _check_space(folder, shapes)
            self._maps = {name: _map(*item, resume=resume) for name, item in zip(widths, shapes.items(), strict=True)}
        except OSError as error:
            raise StoreError(
                f"cannot write {folder}: {error.strerror or error}; choose a place with free space"
            ) from error

    def add(
        self, observations: Floats, actions: Floats, rewards: Any, terminated: Any, next_observations: Floats
    ) -> None:
        """One transition of every seed: arrays (seeds, ...)."""
        row = self.count % self.capacity
        self._maps["observations"][:, row] = observations
        self._maps["next_observations"][:, row] = next_observations
        self._maps["actions"][:, row] = actions
        self._maps["ends"][:, row, 0] = rewards
        self._maps["ends"][:, row, 1] = terminated
        self.count += 1

    def sample(self, generators: list[np.random.Generator], n: int) -> Batch:
        """`n` transitions per seed, each drawn by its seed's own generator."""
        filled = min(self.count, self.capacity)
        rows = [generator.integers(filled, size=n) for generator in generators]
        drawn = {
            name: torch.from_numpy(np.stack([array[seed][row] for seed, row in enumerate(rows)]))
            for name, array in self._maps.items()
        }
        ends = drawn.pop("ends")
        return Batch(rewards=ends[..., :1], terminated=ends[..., 1:], **drawn)

    def flush(self) -> None:
        """Hand everything to the disk, before a checkpoint relies on it."""
        for array in self._maps.values():
            array.flush()


def _check_space(folder: Path, shapes: dict[Path, tuple[int, int, int]]) -> None:
    """A full disk under a mapped file kills the process without a word, so it is refused beforehand."""
    there = sum(512 * path.stat().st_blocks for path in shapes if path.exists())
    needed, free = sum(map(_count_bytes, shapes.values())) - there, shutil.disk_usage(folder).free
    if needed > free:
        text = f"{folder}: transitions need {needed / 1e9:.1f} GB more, {free / 1e9:.1f} GB are free"
        raise StoreError(f"{text}; choose another place, fewer seeds or fewer steps")


def _count_bytes(shape: tuple[int, int, int]) -> int:
    return 4 * int(np.prod(shape))


def _map(path: Path, shape: tuple[int, int, int], *, resume: bool) -> Any:
    if resume and not (path.exists() and path.stat().st_size == _count_bytes(shape)):
        raise StoreError(f"{path} is missing or was cut, and nothing goes on without it; delete {path.parent}")
    return np.memmap(path, np.float32, "r+" if resume else "w+", shape=shape)
