"""Where time goes, stage by stage, and how much faster a run could get at most (Amdahl)."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

ACTING = ("environment", "inference", "pull", "decompress", "deserialize", "load", "send", "wait", "other")
LEARNING = ("update", "idle", "publish", "save")
SERVING = ("encode", "compress")
QUANTIZED = ("inference", "pull", "decompress", "deserialize", "load")  # what a precision can make faster
RAY = ("pull", "send")  # stages in which the engine, not the policy, takes the time


class Stopwatch:
    """Gives the time since the last lap to a stage: wall clock, and CPU time of this thread; nanoseconds inside."""

    def __init__(self, stages: Sequence[str]) -> None:
        self._wall = dict.fromkeys(stages, 0)
        self._cpu = dict.fromkeys(stages, 0)
        self._last = time.perf_counter_ns(), time.thread_time_ns()

    def lap(self, stage: str) -> None:
        """What happened since the last lap was `stage`."""
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        self._wall[stage] += wall - self._last[0]
        self._cpu[stage] += cpu - self._last[1]
        self._last = wall, cpu

    def resume(self) -> None:
        """What happened since the last lap is nobody's."""
        self._last = time.perf_counter_ns(), time.thread_time_ns()

    def read(self, steps: int) -> "Breakdown":
        """The seconds of every stage since the start, wall clock and processor, with `steps` to divide them by."""
        wall, cpu = ({s: ns / 1e9 for s, ns in times.items()} for times in (self._wall, self._cpu))
        return Breakdown(steps, wall, cpu)


@dataclass(frozen=True)
class Breakdown:
    """Seconds per stage over `steps` environment steps (actors) or updates (learner)."""

    steps: int
    wall: Mapping[str, float]
    cpu: Mapping[str, float]

    def per_step(self, clock: str = "wall") -> dict[str, float]:
        """Microseconds per step and stage, by `clock`: wall or cpu."""
        times: Mapping[str, float] = getattr(self, clock)
        return {stage: 1e6 * seconds / max(self.steps, 1) for stage, seconds in times.items()}

    def add(self, other: "Breakdown") -> "Breakdown":
        """The sum of two breakdowns, stage by stage."""
        wall = {stage: seconds + other.wall[stage] for stage, seconds in self.wall.items()}
        cpu = {stage: seconds + other.cpu[stage] for stage, seconds in self.cpu.items()}
        return Breakdown(self.steps + other.steps, wall, cpu)

    def as_dict(self) -> dict[str, Any]:
        """Steps and seconds per stage in built-in types, as JSON and Ray carry them."""
        return {"steps": self.steps, "wall": dict(self.wall), "cpu": dict(self.cpu)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Rebuild a breakdown from what `as_dict` wrote; KeyError where a part is missing."""
        return cls(int(data["steps"]), dict(data["wall"]), dict(data["cpu"]))


def sum_breakdowns(parts: Sequence[Breakdown], stages: Sequence[str]) -> Breakdown:
    """The sum of several breakdowns, stage by stage."""
    total = Breakdown(0, dict.fromkeys(stages, 0.0), dict.fromkeys(stages, 0.0))
    for part in parts:
        total = total.add(part)
    return total


def find_share(parts: Mapping[str, float], stages: Sequence[str]) -> float:
    """Share of `stages` in all; 0 where there is nothing."""
    total = sum(parts.values())
    return sum(parts.get(stage, 0.0) for stage in stages) / total if total else 0.0


def find_ceiling(share: float) -> float:
    """The speed-up when the given share of the time takes none (Amdahl 1967); infinite for all of it."""
    return 1 / (1 - share) if share < 1 else float("inf")


@dataclass(frozen=True)
class EndToEnd:
    """What one environment step of a whole run costs, in seconds; actors and learner work side by side."""

    elapsed: float  # wall clock
    learner: float  # busy, all of it in full precision
    untouched: float  # of the actors, side by side: everything but what a precision changes

    @property
    def ceiling(self) -> float:
        """The speed-up of a run whose actors infer and load in no time: the slower of the two sides is left."""
        return self.elapsed / max(self.learner, self.untouched)


def cost_per_step(elapsed: float, steps: int, actors: int, acting: Breakdown, learning: Breakdown) -> EndToEnd:
    """The same from a run's own clocks; waiting for the other side counts for neither."""
    busy = sum(learning.wall[stage] for stage in LEARNING if stage != "idle")
    left = sum(acting.wall[stage] for stage in ACTING if stage not in (*QUANTIZED, "wait"))
    return EndToEnd(elapsed / steps, busy / steps, left / actors / steps)
