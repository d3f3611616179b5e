"""Frozen values that all floors share; standard library only, so that the plugin can import them for free.

Everything here holds built-in types only and survives JSON and xdist's serializer unchanged.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Self

from quarl_bench.errors import SpecError

ID_PART = re.compile(r"[a-z0-9]+")
OUR_BASELINES = ""  # the origin of a case that runs on this project's own policies
ZOO = "zoo"  # of one that runs on stable-baselines3 agents that others trained
LOCAL = "local"  # the board that every machine has: this one


class Source(StrEnum):
    """Where a number comes from; sources never mix in one row."""

    MEASURED = "measured"  # on the named machine or board
    SIMULATED = "simulated"  # register-transfer level
    EMULATED = "emulated"  # QEMU: correctness and instruction counts, never latency or energy
    ESTIMATED = "estimated"  # synthesis without vendor tools, formulas
    PUBLISHED = "published"  # by others, who measured it; only what follows from it is ours


class Outcome(StrEnum):
    """What an interval says about a claim's threshold."""

    SUPPORTED = "supported"  # the interval lies wholly on the claimed side
    REFUTED = "refuted"  # wholly on the other side
    INCONCLUSIVE = "inconclusive"  # it contains the threshold
    UNDECIDABLE = "undecidable"  # there is none: what is here could not decide, however it had come out
    PARTIAL = "partial"  # an aggregate claim with cells missing

    @property
    def open(self) -> bool:
        """Whether the cells are all there and do not decide."""
        return self in (Outcome.INCONCLUSIVE, Outcome.UNDECIDABLE)


UNDECIDED = tuple(str(outcome) for outcome in Outcome if outcome.open or outcome is Outcome.PARTIAL)


@dataclass(frozen=True, order=True)
class PolicySpec:
    """Which trained policy: algorithm, environment slug, training seed, who trained it, and with which quantizer."""

    algo: str
    environment: str
    seed: int
    origin: str = OUR_BASELINES
    scheme: str = ""  # qat<bits>, of a quantization-aware trained one

    @property
    def name(self) -> str:
        """`ppo-cartpole-seed0`, `ppo-cartpole-zoo-seed0` for another origin, `ppo-cartpole-qat4-seed0`."""
        parts = (self.algo, self.environment, self.scheme, self.origin, f"seed{self.seed}")
        return "-".join(part for part in parts if part)

    @cached_property
    def kind(self) -> "PolicySpec":
        """What policies have in common that differ in their seed alone: the one of seed 0."""
        return dataclasses.replace(self, seed=0)


@dataclass(frozen=True, order=True)
class Case:
    """One cell of the matrix. Its id is `<algo>-<env>-<scheme>[-<origin>][-<board>]`, each part in [a-z0-9]."""

    algo: str
    environment: str
    scheme: str
    origin: str = OUR_BASELINES
    board: str = ""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            part = getattr(self, field.name)
            optional = field.default is not dataclasses.MISSING and part == ""
            if not optional and not ID_PART.fullmatch(part):
                raise SpecError(f"case {field.name} {part!r}: an id part is one or more of [a-z0-9]; rename it")

    @property
    def id(self) -> str:
        """The pytest id, which is also the name of the regression file."""
        return "-".join(part for part in dataclasses.astuple(self) if part)


def name_seeds(seeds: Iterable[int]) -> tuple[str, ...]:
    """Names of episodes where every environment seed is an episode of its own."""
    return _name_seeds(tuple(seeds))


@lru_cache(maxsize=256)
def _name_seeds(seeds: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"seed-{seed}" for seed in seeds)


def agree_on_episodes(seeds: Iterable[int], named: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The names of episodes of equal seeds that were played several times, given what each playing called them.

    Where one of them shows that equal starts lead apart, every seed is an episode. SpecError where they began
    elsewhere: then nothing pairs them.
    """
    apart = name_seeds(seeds)
    if apart in named:
        return apart
    if len(set(named)) > 1:
        raise SpecError(
            "policies began elsewhere from equal seeds: the environment's reset(seed=...) does not give the same start "
            "twice; draw it from that seed"
        )
    return named[0]


@dataclass(frozen=True)
class Measurement:
    """Episode returns of the policies of one cell, on environment seeds that every scheme of the cell shares.

    `returns[p][e]` is the undiscounted return of policy `p` on `environment_seeds[e]`; `episodes[e]` names the
    episode's start, so that columns with equal names are the same episode and count once in an interval.

    Attributes:
        policies: Hashes of the weights, one for each row of `returns`.
        environment_seeds: One for each column of `returns`.
        episodes: Names of the starts, one for each column.
        returns: Undiscounted returns (policies, episodes).
        lengths: Of the same episodes, in environment steps.
        agreement: Of each policy, the share of visited states in which it acts as fp32 does, on Atari an estimate;
            None for fp32 itself.
        deterministic: Whether actions are argmax or the mean; False where they are sampled.
        source: Whether the returns were measured, simulated, emulated, estimated or published.
        starts: How many starts the task has, where nothing but the start makes two episodes differ; else None.
        sampled: The same policies with sampled actions, where a claim has to hold for both.
    """

    policies: tuple[str, ...]
    environment_seeds: tuple[int, ...]
    episodes: tuple[str, ...]
    returns: tuple[tuple[float, ...], ...]
    lengths: tuple[tuple[int, ...], ...]
    agreement: tuple[float, ...] | None = None
    deterministic: bool = True
    source: Source = Source.MEASURED
    starts: int | None = None
    sampled: "Measurement | None" = None

    @property
    def distinct_episodes(self) -> int:
        """Number of different episode starts, the E that an interval may use."""
        return len(set(self.episodes))

    @property
    def census(self) -> bool:
        """Whether every start there is was played by policies that leave nothing to chance: no episode is unseen."""
        return self.deterministic and self.distinct_episodes == self.starts

    @property
    def mean(self) -> float:
        """Mean return over policies and episodes."""
        cells = [value for row in self.returns for value in row]
        return sum(cells) / len(cells)

    def as_dict(self) -> dict[str, Any]:
        """Built-in types only, as stored in JSON; without `sampled`, which is stored as a measurement of its own."""
        data = dataclasses.asdict(self) | {"source": str(self.source)}
        del data["sampled"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Inverse of `as_dict`; raises KeyError, TypeError or ValueError when `data` is not one."""
        agreement = data["agreement"]
        measurement = cls(
            policies=tuple(str(p) for p in data["policies"]),
            environment_seeds=tuple(int(s) for s in data["environment_seeds"]),
            episodes=tuple(str(e) for e in data["episodes"]),
            returns=tuple(tuple(float(v) for v in row) for row in data["returns"]),
            lengths=tuple(tuple(int(v) for v in row) for row in data["lengths"]),
            agreement=None if agreement is None else tuple(float(a) for a in agreement),
            deterministic=bool(data["deterministic"]),
            source=Source(data["source"]),
            starts=None if data["starts"] is None else int(data["starts"]),
        )
        width = len(measurement.environment_seeds)
        rows = (*measurement.returns, *measurement.lengths, measurement.episodes)
        columns = (measurement.returns, measurement.lengths, measurement.agreement or measurement.policies)
        height = len(measurement.policies)
        if any(len(row) != width for row in rows) or any(len(column) != height for column in columns):
            raise ValueError("rows and columns do not match the policies and environment seeds")
        return measurement


@dataclass(frozen=True)
class Verdict:
    """An interval compared with a threshold, with everything a reader needs to weigh it.

    Attributes:
        outcome: `supported`, `refuted`, `inconclusive`, `undecidable` or `partial`.
        estimate: Of the judged quantity, for example the ratio of mean returns.
        low: Lower end of the interval; None where the data give no interval.
        high: Upper end of the interval.
        threshold: What the interval is compared with.
        scope: "this policy" for one policy, else "policies trained this way".
        policies: How many policies were measured.
        episodes: How many episodes each of them played.
        distinct_episodes: How many of these differ; equal ones count once.
        needed: What would decide an open verdict, for example how many episodes.
        caveats: What a sample of this size cannot exclude.
        missing: Cells that a partial verdict lacks.
    """

    outcome: Outcome
    estimate: float | None
    low: float | None
    high: float | None
    threshold: float
    scope: str
    policies: int
    episodes: int
    distinct_episodes: int
    needed: str = ""
    caveats: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Every field of the verdict in built-in types, the outcome as its word."""
        return dataclasses.asdict(self) | {"outcome": str(self.outcome)}
