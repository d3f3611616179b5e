"""What every actor sent and what it was told to have arrived: whether transitions are lost, how long a gap takes."""

from dataclasses import dataclass
from typing import Any


@dataclass
class Life:
    """One actor from its start to its death; a replacement lives the next one. Times are seconds of any clock."""

    first: float  # when its first chunk came
    last: float
    chunks: int = 0
    steps: int = 0
    transitions: int = 0
    acknowledged: int = 0  # transitions of which the actor knows that they are here


class Ledger:
    """Counts chunks by actor and life."""

    def __init__(self) -> None:
        self._lives: dict[tuple[int, int], Life] = {}

    def add(self, actor: int, life: int, *, steps: int, transitions: int, acknowledged: int, now: float) -> None:
        """A chunk that is in the replay; `acknowledged` is what its actor had been told before it sent it."""
        entry = self._lives.setdefault((actor, life), Life(now, now))
        entry.last = now
        entry.chunks += 1
        entry.steps += steps
        entry.transitions += transitions
        entry.acknowledged = max(entry.acknowledged, acknowledged)

    def list_lives(self) -> list[dict[str, Any]]:
        """One entry per life, of built-in types; `gap` are the seconds without this actor since its last life."""
        return [
            {
                "actor": actor,
                "life": life,
                "chunks": entry.chunks,
                "steps": entry.steps,
                "transitions": entry.transitions,
                "acknowledged": entry.acknowledged,
                "gap": self._find_gap(actor, life),
            }
            for (actor, life), entry in sorted(self._lives.items())
        ]

    def _find_gap(self, actor: int, life: int) -> float | None:
        before = [self._lives[key] for key in sorted(self._lives) if key[0] == actor and key[1] < life]
        return self._lives[actor, life].first - before[-1].last if before else None


def count_lost(lives: list[dict[str, Any]]) -> int:
    """Transitions that were acknowledged and are not here, over all lives."""
    return sum(max(0, entry["acknowledged"] - entry["transitions"]) for entry in lives)
