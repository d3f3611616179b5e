"""Contenders that took turns: the number of every round, and how many times as good ours was. Standard library only."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from quarl_bench.errors import SpecError


@dataclass(frozen=True)
class Pair:
    """One contender held against another; `target` is the ratio that we mean to reach, None where none was set."""

    ours: str
    theirs: str
    target: float | None = None


@dataclass(frozen=True)
class Ratio:
    """Over the rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{format_ratio(self.median)} ({format_ratio(self.least)} to {format_ratio(self.most)})"


@dataclass(frozen=True)
class Contest:
    """Numbers of every contender, round by round in the order of the rounds, in one unit.

    `rate` says that more is better, as of steps per second; else less is, as of seconds. SpecError for rounds that are
    not equally many, for numbers that no clock gives, and for pairs of nobody.
    """

    name: str
    unit: str
    rounds: Mapping[str, tuple[float, ...]]
    pairs: tuple[Pair, ...] = ()
    rate: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        counts = {len(numbers) for numbers in self.rounds.values()}
        if len(counts) != 1 or 0 in counts:
            raise SpecError(f"{self.name}: every contender needs equally many rounds, at least one")
        paired = {name for pair in self.pairs for name in (pair.ours, pair.theirs)}
        if unknown := paired - self.rounds.keys():
            raise SpecError(f"{self.name}: nobody is called {', '.join(sorted(unknown))}")
        for name, numbers in self.rounds.items():
            if not all(math.isfinite(number) and (number > 0 or name not in paired) for number in numbers):
                raise SpecError(f"{self.name}: {name} has a number that is no measurement")

    def find_median(self, contender: str) -> float:
        """Of its rounds."""
        return statistics.median(self.rounds[contender])

    def find_ratio(self, pair: Pair) -> Ratio:
        """How many times as good ours was, within each round: what disturbs one round disturbs both."""
        numbers = zip(self.rounds[pair.ours], self.rounds[pair.theirs], strict=True)
        ratios = [ours / theirs if self.rate else theirs / ours for ours, theirs in numbers]
        return Ratio(statistics.median(ratios), min(ratios), max(ratios))

    def as_dict(self) -> dict[str, Any]:
        """Built-in types only, the ratios among them; `from_dict` is the inverse."""
        ratios = [vars(pair) | vars(self.find_ratio(pair)) for pair in self.pairs]
        rounds = {name: list(numbers) for name, numbers in self.rounds.items()}
        return vars(self) | {"rounds": rounds, "pairs": ratios}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """SpecError for what is ill-formed, and for a ratio that its rounds do not give."""
        try:
            rounds = {str(name): tuple(map(float, numbers)) for name, numbers in data["rounds"].items()}
            pairs = tuple(Pair(each["ours"], each["theirs"], each["target"]) for each in data["pairs"])
            made = cls(data["name"], data["unit"], rounds, pairs, bool(data["rate"]), data["note"])
            stored = [Ratio(each["median"], each["least"], each["most"]) for each in data["pairs"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SpecError(f"a contest is ill-formed: {error!r}") from error
        for pair, ratio in zip(pairs, stored, strict=True):
            if ratio != made.find_ratio(pair):
                raise SpecError(f"{made.name}: {pair.ours} against {pair.theirs} is not what the rounds give")
        return made


def format_ratio(ratio: float) -> str:
    """Three digits: 1.30x, 41.2x, 233x."""
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:#.3g}x"
