"""In how many visited states another policy does what was done."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.evaluation.acting import Acting
from quarl_bench.evaluation.batches.crossings import Crossings
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.policy import Policy

ACTION_TOLERANCE = 0.01  # continuous actions agree when they differ by at most this share of the action range
# States that are asked about at once. With so many a convolutional net is fastest; a small one is asked seldom.
IMAGES, VECTORS = 32, 512
NEVER = np.iinfo(np.int64).max


class Witness:
    """A policy that is asked about states that somebody else visits, a block of them at a time.

    Of an episode it is asked about every state up to the first in which it does something else, and from there on
    about every `every`-th, which then stands for as many.
    """

    def __init__(self, policy: Policy, acting: Acting, episodes: int, every: int = 1) -> None:
        self._policy, self._acting, self._every = policy, acting, every
        self._waiting: list[tuple[NDArray[np.intp], NDArray[np.int64], NDArray[Any], NDArray[Any], Any]] = []
        # Of each episode: its states, and the first of them in which the policy does something else.
        self._states, self._first = np.zeros(episodes, np.int64), np.full(episodes, NEVER)
        # All of those, blocks of (episode, step, how many states it stands for).
        self._apart: list[tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]] = []

    def see(self, active: NDArray[np.intp], observations: NDArray[Any], actions: NDArray[Any], drawn: Any) -> None:
        """What was done (n, ...) in the states (n, ...) of the episodes `active` (n,), and what was drawn for it."""
        steps = self._states[active]
        self._states[active] += 1
        asked = self._counts(active, steps)
        if not asked.all():
            active, steps, observations, actions = active[asked], steps[asked], observations[asked], actions[asked]
            drawn = None if drawn is None else drawn[asked]
        self._waiting.append((active, steps, observations, actions, drawn))
        enough = IMAGES if observations.ndim > 2 else VECTORS
        if self._acting.stepwise or sum(len(waiting[0]) for waiting in self._waiting) >= enough:
            self._ask()

    def tell(self, crossings: Crossings) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """In how many of the states seen so far, of each episode, it does the same, and whether it does in all.

        The rest of an episode that another tells is its own, too.
        """
        self._ask()
        nothing = (np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0, np.int64))
        episodes, steps, counts = map(np.concatenate, zip(nothing, *self._apart, strict=True))
        agreed = self._states - np.bincount(episodes, counts, len(self._states)).astype(np.int64)
        alike = self._first == NEVER
        for episode, legs in crossings.list_rests():
            for leg in legs:
                rest = (episodes == leg.episode) & (steps >= leg.since)
                agreed[episode] += self._states[leg.episode] - leg.since - counts[rest].sum()
                alike[episode] &= self._first[leg.episode] == NEVER
        return np.maximum(agreed, 0), alike

    def _counts(self, episodes: NDArray[np.intp], steps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which states count: every one up to the first difference, and every `every`-th behind it."""
        behind = steps - self._first[episodes]
        return np.asarray((behind <= 0) | (behind % self._every == 0))

    def _ask(self) -> None:
        if not self._waiting:
            return
        episodes, steps, observations, actions, drawn = map(_join, zip(*self._waiting, strict=True))
        self._waiting.clear()
        if not len(episodes):
            return
        expected = self._acting.choose(self._policy, observations, drawn)
        apart = ~compare(actions, expected, self._policy.head)
        np.minimum.at(self._first, episodes[apart], steps[apart])
        apart &= self._counts(episodes, steps)
        stands_for = np.where(steps > self._first[episodes], self._every, 1)
        self._apart.append((episodes[apart], steps[apart], stands_for[apart]))


def _join(parts: tuple[Any, ...]) -> Any:
    return None if parts[0] is None else np.concatenate(parts)


def count_agreement(actions: NDArray[Any], expected: NDArray[Any], head: ActionHead) -> int:
    """In how many states the actions agree."""
    return int(compare(actions, expected, head).sum())


def compare(actions: NDArray[Any], expected: NDArray[Any], head: ActionHead) -> NDArray[np.bool_]:
    """In which states (n,) the actions agree: equal indices, or values within `ACTION_TOLERANCE` of each other."""
    if head.low is None or head.high is None:
        equal = actions == expected
        return np.asarray(equal if head.single else equal.all(axis=1))
    return np.asarray((np.abs(actions - expected) <= ACTION_TOLERANCE * (head.high - head.low)).all(axis=1))
