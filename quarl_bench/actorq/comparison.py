"""Runs side by side: how much faster each is than full precision, how much it could be, and where its time goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from quarl_bench.actorq.breakdown import ACTING, QUANTIZED, Breakdown, find_ceiling, find_share
from quarl_bench.actorq.evaluator import find_time
from quarl_bench.actorq.record import Record, read_acting, read_costs

BASE = "fp32"
BITS = "precision"  # of actors, the setting that runs are compared in
SHARE = 0.95  # of the fp32 run's best mean return, which the time is taken to
MAY_DIFFER = (
    "precision",
    "communication",
    "points",
)  # settings in which twins may differ; `points` changes no training


@dataclass(frozen=True)
class RunComparison:
    """One run against the fp32 run of the same task, seed and options; None where there is no such run."""

    record: Record
    speedup: float | None  # of environment steps per second
    ceiling: float | None  # of that, by Amdahl: actors infer and load in no time
    loop_speedup: float | None  # of an actor's step without waiting
    loop_ceiling: float | None
    seconds: float | None  # to 95% of the fp32 run's best return
    cpu_seconds: float | None  # the same on the CPU's clock

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the run was started with."""
        settings: dict[str, Any] = self.record["settings"]
        return settings

    @property
    def steps_per_second(self) -> float:
        """Environment steps of all actors, wall clock."""
        return float(self.record["steps"] / self.record["elapsed"])

    @property
    def idle(self) -> float:
        """Share of its time that the learner waits for actors."""
        return find_share(self.record["breakdown"]["wall"], ("idle",))


def compare_runs(records: Sequence[Record]) -> list[RunComparison]:
    """A row per run, in the order given."""
    bases = {list_shared_settings(record): record for record in records if record["settings"]["precision"] == BASE}
    return [_compare(record, bases.get(list_shared_settings(record))) for record in records]


def list_shared_settings(record: Record) -> tuple[str, ...]:
    """What a run shares with those that differ from it in the actors' precision alone."""
    settings = record["settings"]
    return tuple(f"{name} {settings[name]}" for name in sorted(settings.keys() - MAY_DIFFER))


def find_target(base: Record) -> float:
    """95% of the best mean return of a run; towards the worse side where returns are negative."""
    best = max(float(point["mean"]) for point in base["curve"])
    return best - (1 - SHARE) * abs(best)


def measure_loop(acting: Breakdown, clock: str = "cpu") -> float:
    """Microseconds of an actor's step, waiting for the learner left out."""
    return sum(value for stage, value in acting.per_step(clock).items() if stage != "wait")


def list_breakdown(rows: Sequence[RunComparison], clock: str = "wall") -> list[list[str]]:
    """A table of microseconds per actor step: a line per stage, a column per run."""
    header = ["us per step", *(name_run(row) for row in rows)]
    columns = [read_acting(row.record).per_step(clock) for row in rows]
    return [header, *([stage, *(f"{column[stage]:.1f}" for column in columns)] for stage in ACTING)]


def list_summary(rows: Sequence[RunComparison]) -> list[list[str]]:
    """A header and one line of cells per run, ready to be printed as columns."""
    header = ["run", "steps/s", "x fp32", "ceiling", "loop x", "ceiling", "s to 95%", "cpu s", "idle", "bytes",
              "encode ms", "agree", "KL", "stale", "deaths", "return"]  # fmt: skip
    return [header, *(_format(row) for row in rows)]


def name_run(row: RunComparison) -> str:
    """What tells runs of one command apart."""
    s = row.settings
    return f"{s['precision']}-a{s['actors']}-u{s['update_period']}-s{s['seed']}"


def group_seeds(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Runs that differ in their seed alone, under their precision and what else tells them from others here."""
    told = [name for name in records[0]["settings"] if name not in ("seed", BITS)]
    telling = [name for name in told if len({str(record["settings"][name]) for record in records}) > 1]
    groups: dict[str, list[Record]] = {}
    for record in records:
        settings = record["settings"]
        words = [settings[BITS], *(f"{name.replace('_', ' ')} {_show_setting(settings[name])}" for name in telling)]
        groups.setdefault(", ".join(words), []).append(record)
    return groups


def list_curve(record: Record) -> list[tuple[float, float]]:
    """(seconds, mean return) of the policies that a run has kept, in order."""
    return [(float(point["elapsed"]), float(point["mean"])) for point in record["curve"]]


def _compare(record: Record, base: Record | None) -> RunComparison:
    if base is None:
        return RunComparison(record, None, None, None, None, None, None)
    target, ours, theirs = find_target(base), read_acting(record), read_acting(base)
    per_step = {stage: value for stage, value in theirs.per_step("cpu").items() if stage != "wait"}
    return RunComparison(
        record,
        speedup=(record["steps"] / record["elapsed"]) / (base["steps"] / base["elapsed"]),
        ceiling=read_costs(base).ceiling,
        loop_speedup=measure_loop(theirs) / measure_loop(ours),
        loop_ceiling=find_ceiling(find_share(per_step, QUANTIZED)),
        seconds=find_time(record["curve"], target),
        cpu_seconds=find_time(record["curve"], target, "cpu"),
    )


def _format(row: RunComparison) -> list[str]:
    drift, server = row.record["drift"], row.record["server"]
    numbers = (row.speedup, row.ceiling, row.loop_speedup, row.loop_ceiling)
    return [
        name_run(row),
        f"{row.steps_per_second:,.0f}",
        *(_show(value, ".2f") for value in numbers),
        _show(row.seconds, ".1f"),
        f"{row.record['cpu']:.1f}",
        f"{row.idle:.0%}",
        f"{server['bytes']:,.0f}",
        f"{sum(Breakdown.from_dict(server['breakdown']).per_step('cpu').values()) / 1e3:.1f}",
        _show(drift["agreement"], ".3f"),
        _show(drift["kl"], ".3g"),
        _show(drift["staleness"], ".0f"),
        str(row.record["deaths"]),
        f"{row.record['scores']['fp32']['mean']:.1f}",
    ]


def _show_setting(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _show(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
