"""Games that come to a state in which another game was: they go on alike, so that one of the two is played on.

Without sticky actions a deterministic policy plays about four games of Atari's thirty starts: those whose no-ops
differ by a multiple of the frame skip soon meet, one some steps behind the other. What is compared is the emulator's
whole state, its counters too, and what the agent sees: equal ones have equal futures.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.classic_control import Bools


@dataclass(frozen=True)
class Leg:
    """What `episode` did from its step `since` on, by when it had returned `earned`."""

    episode: int
    since: int
    earned: float


class Crossings:
    """Which episodes of one batch came, and when, to where another was: of the first `count`, whose states have names.

    `name_state` gives the name of the state that an episode is in, or None where it is not to be compared.
    """

    def __init__(self, name_state: Callable[[int], bytes | None] = lambda _: None, count: int = 0) -> None:
        self._name_state, self._count = name_state, count
        self._seen: dict[bytes, Leg] = {}  # by the name of a state: who was in it first
        self._joined: dict[int, Leg] = {}  # by episode: who was there before it

    def end(self, active: NDArray[np.intp], done: Bools, steps: int, earned: NDArray[np.float64]) -> Bools:
        """Which of the episodes `active` (n,) end behind `steps`: those that are `done`, and those that meet another.

        `earned` (n,) is what each has returned so far.
        """
        if not self._count:
            return done
        met = [
            not over and index < self._count and self._meet(index, steps, total)
            for index, over, total in zip(active.tolist(), done.tolist(), earned.tolist(), strict=True)
        ]
        return done | np.array(met, np.bool_)

    def _meet(self, episode: int, steps: int, earned: float) -> bool:
        """Whether another episode was in the state that this one is in; that one tells the rest."""
        name = self._name_state(episode)
        if name is None:
            return False
        first = self._seen.setdefault(name, Leg(episode, steps, earned))
        if first.episode == episode:
            return False
        self._joined[episode] = first
        return True

    def list_rests(self) -> Iterator[tuple[int, list[Leg]]]:
        """Each episode that another tells the rest of, with that rest, in parts: the other may have met a third."""
        for episode in self._joined:
            legs: list[Leg] = []
            while (leg := self._joined.get(legs[-1].episode if legs else episode)) is not None:
                legs.append(leg)
            yield episode, legs

    def complete(
        self, returns: NDArray[np.float64], lengths: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Returns and lengths (episodes,) of whole episodes, from what each has done itself."""
        whole, steps = returns.copy(), lengths.copy()
        for episode, legs in self.list_rests():
            whole[episode] += sum(returns[leg.episode] - leg.earned for leg in legs)
            steps[episode] += sum(lengths[leg.episode] - leg.since for leg in legs)
        return whole, steps
