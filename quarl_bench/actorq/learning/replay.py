"""n-step transitions: how an actor builds them, and the ring they are sampled from."""

from collections import deque
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Transitions:
    """Rows (n, ...): `discount` is discount^k behind k steps, and 0 where the episode terminated within them."""

    observations: Floats
    actions: NDArray[Any]  # (n,) indices, or (n, actions) in [-1, 1]
    rewards: Floats  # (n,) discounted sums
    discounts: Floats  # (n,)
    next_observations: Floats
    log_probs: Floats  # (n,) of the actions, by the policy that took them; 0 where nobody asked

    def __len__(self) -> int:
        return len(self.rewards)


class Assembler:
    """From steps to n-step transitions; the last ones of an episode are shorter."""

    def __init__(self, n_step: int, discount: float) -> None:
        self.n_step, self.discount = n_step, discount
        self._window: deque[tuple[Floats, Any, float, float]] = deque()
        self._rows: list[tuple[Any, ...]] = []

    def add(
        self, observation: Floats, action: Any, reward: float, after: Floats, *, terminated: bool, log_prob: float = 0.0
    ) -> None:
        """One step; `after` is the observation behind it, also where the episode ends."""
        self._window.append((observation, action, reward, log_prob))
        if terminated:
            while self._window:
                self._emit(after, terminated=True)
        elif len(self._window) == self.n_step:
            self._emit(after, terminated=False)

    def end(self, after: Floats) -> None:
        """The episode was cut off, not terminated: what is left looks forward to `after`."""
        while self._window:
            self._emit(after, terminated=False)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self) -> Transitions:
        """All finished transitions; they leave."""
        columns = zip(*self._rows, strict=True)
        arrays = [np.stack(column) for column in columns]
        self._rows.clear()
        return Transitions(*arrays)

    def _emit(self, after: Floats, *, terminated: bool) -> None:
        total = 0.0
        for _, _, reward, _ in reversed(self._window):
            total = reward + self.discount * total
        remaining = 0.0 if terminated else self.discount ** len(self._window)
        observation, action, _, log_prob = self._window.popleft()
        row = (observation, action, np.float32(total), np.float32(remaining), after, np.float32(log_prob))
        self._rows.append(row)


class Replay:
    """A ring of `capacity` transitions, made when the first ones come."""

    def __init__(self, capacity: int, generator: np.random.Generator) -> None:
        self.capacity, self.count = capacity, 0  # rows written so far, beyond the capacity too
        self._generator = generator
        self._columns: dict[str, NDArray[Any]] = {}

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    def add(self, rows: Transitions) -> None:
        """Append transitions; when the ring is full they replace the oldest."""
        if not self._columns:
            self._columns = {
                name: np.zeros((self.capacity, *column.shape[1:]), column.dtype) for name, column in _columns(rows)
            }
        places = (self.count + np.arange(len(rows))) % self.capacity
        for name, column in _columns(rows):
            self._columns[name][places] = column
        self.count += len(rows)

    def sample(self, n: int) -> Transitions:
        """`n` transitions drawn uniformly, with replacement."""
        rows = self._generator.integers(len(self), size=n)
        return Transitions(**{name: column[rows] for name, column in self._columns.items()})

    def sample_runs(self, n: int, length: int) -> Transitions:
        """`n` transitions in runs of `length` as they were added: runs drawn uniformly, the ring made of whole ones."""
        starts = self._generator.integers(len(self) // length, size=n // length) * length
        rows = (starts[:, None] + np.arange(length)).ravel()
        return Transitions(**{name: column[rows] for name, column in self._columns.items()})

    def state(self) -> dict[str, NDArray[Any]]:
        """The filled rows of every column, for a checkpoint."""
        return {name: column[: len(self)] for name, column in self._columns.items()}

    def restore(self, columns: dict[str, NDArray[Any]], count: int) -> None:
        """Fill an empty buffer with the columns and the count of inserts that `state` gave."""
        self.add(Transitions(**columns))
        self.count = count


def _columns(rows: Transitions) -> list[tuple[str, NDArray[Any]]]:
    return [(field.name, getattr(rows, field.name)) for field in fields(Transitions)]
