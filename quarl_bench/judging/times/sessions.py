"""Ratios of times over several sessions: they move more from session to session than the blocks of one show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # claims are read without NumPy and SciPy
    from quarl_bench.judging.statistics import Interval

APART = timedelta(hours=1)  # sessions that are nearer see the same machine
WANTED, DAYS = 5, 2  # sessions, on so many days; fewer are told as what they are
Ratios = Mapping[str, float]  # by what was timed


@dataclass(frozen=True)
class Session:
    """One timing: when it was (UTC), and the ratios that it found."""

    when: datetime
    ratios: Ratios


@dataclass(frozen=True)
class Sessions:
    """The sessions before this one, of the same things on the same machine, and the day of this one."""

    earlier: tuple[Session, ...] = ()
    today: date | None = None

    def cover(self, now: "Interval", read: Callable[[Ratios], float]) -> "Interval":
        """Limits for the ratio that sessions find on average; `read` finds it in the ratios of an earlier one.

        With earlier sessions they are Student's over the logarithms of all sessions, with those of this one alone
        they are `now`, which covers blocks only.
        """
        from quarl_bench.judging.statistics import bound_ratio

        if not self.earlier:
            return now
        return bound_ratio([*(read(session.ratios) for session in self.earlier), now.estimate])

    def __str__(self) -> str:
        """What limits cover: `this session`, or how many sessions on how many days."""
        if not self.earlier:
            return "this session"
        days = {session.when.date() for session in self.earlier} | ({self.today} if self.today else set())
        told = f"{len(self.earlier) + 1} sessions on {'one day' if len(days) == 1 else f'{len(days)} days'}"
        few = len(self.earlier) + 1 < WANTED or len(days) < DAYS
        return f"{told} ({WANTED} on {DAYS} days are wanted)" if few else told


ALONE = Sessions()
