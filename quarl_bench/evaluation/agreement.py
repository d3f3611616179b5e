"""In how many visited states another policy does what was done."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.evaluation.acting import Acting
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.policy import Policy

ACTION_TOLERANCE = 0.01  # continuous actions agree when they differ by at most this share of the action range
BLOCK = 32  # states that are asked about at once: a convolutional net is fastest there


class Witness:
    """A policy that is asked about states that somebody else visits, a block of them at a time."""

    def __init__(self, policy: Policy, acting: Acting, episodes: int) -> None:
        self._policy, self._acting = policy, acting
        self._waiting: list[tuple[NDArray[np.intp], NDArray[Any], NDArray[Any], Any]] = []
        self._agreed = np.zeros(episodes, np.int64)

    def see(self, active: NDArray[np.intp], observations: NDArray[Any], actions: NDArray[Any], drawn: Any) -> None:
        """What was done (n, ...) in the states (n, ...) of the episodes `active` (n,), and what was drawn for it."""
        self._waiting.append((active, observations, actions, drawn))
        if self._acting.stepwise or sum(len(waiting[0]) for waiting in self._waiting) >= BLOCK:
            self._ask()

    def tell(self) -> NDArray[np.int64]:
        """In how many of the states seen so far, of each episode, it does the same."""
        if self._waiting:
            self._ask()
        return self._agreed

    def _ask(self) -> None:
        active, observations, actions, drawn = zip(*self._waiting, strict=True)
        noise = None if drawn[0] is None else np.concatenate(drawn)
        expected = self._acting.choose(self._policy, np.concatenate(observations), noise)
        agreed = compare(np.concatenate(actions), expected, self._policy.head)
        np.add.at(self._agreed, np.concatenate(active), agreed)
        self._waiting.clear()


def count_agreement(actions: NDArray[Any], expected: NDArray[Any], head: ActionHead) -> int:
    """In how many states the actions agree."""
    return int(compare(actions, expected, head).sum())


def compare(actions: NDArray[Any], expected: NDArray[Any], head: ActionHead) -> NDArray[np.bool_]:
    """In which states (n,) the actions agree: equal indices, or values within `ACTION_TOLERANCE` of each other."""
    if head.low is None or head.high is None:
        equal = actions == expected
        return np.asarray(equal if head.single else equal.all(axis=1))
    return np.asarray((np.abs(actions - expected) <= ACTION_TOLERANCE * (head.high - head.low)).all(axis=1))
