"""Figure 5: whether training in another precision converges, and how soon, from learning curves of paired seeds.

A curve states the mean return on validation seeds at equal distances. What a run reached is its mean over the last
quarter; how long it took, the environment steps to `LEVEL` of the task's highest return, between points by
interpolation, and the whole run where it never got there.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.judging.retention import conclude, name_scope, rule_of_three
from quarl_bench.judging.statistics import Interval, average_strata, bound_mean
from quarl_bench.spec import Outcome, Verdict

LEVEL = 0.8
REST = 0.75  # of a run, behind which it has settled
Curve = Sequence[Mapping[str, Any]]
Runs = Mapping[str, tuple[Sequence[Curve], Sequence[Curve]]]  # by cell: fp32's curves and the arm's, a pair per seed


def judge_convergence(runs: Runs, caps: Mapping[str, float], *, margin: float, missing: Sequence[str] = ()) -> Verdict:
    """Judge "the arm reaches what fp32 reaches": on average within +-margin of the highest return, cells fixed.

    Estimate and interval are arm minus fp32 as a share of `caps`, the highest return of each cell, over paired seeds.
    """
    gains = {
        cell: [(find_level(b) - find_level(a)) / caps[cell] for a, b in zip(*pair, strict=True)]
        for cell, pair in runs.items()
    }
    interval = _average(gains)
    outcome = conclude(interval and interval[1:], -margin, margin)
    notes = [f"{cell}: {np.mean(values):+.3f} of the highest return" for cell, values in gains.items()]
    return _conclude(runs, outcome, interval, margin, [*notes, *_list_times(runs, caps)], missing)


def judge_sooner(
    runs: Runs, caps: Mapping[str, float], *, missing: Sequence[str] = (), threshold: float = 1.0
) -> Verdict:
    """Judge "the arm converges faster": fp32's steps to the level over the arm's, above `threshold`, paired seeds."""
    ratios = {
        cell: [math.log(a / b) for a, b in zip(*(find_times(curves, caps[cell]) for curves in pair), strict=True)]
        for cell, pair in runs.items()
    }
    logs = _average(ratios)
    interval = None if logs is None else Interval(*map(math.exp, logs))
    outcome = conclude(interval and interval[1:], threshold, math.inf)
    return _conclude(runs, outcome, interval, threshold, _list_times(runs, caps), missing)


def find_level(curve: Curve) -> float:
    """Mean return over the last quarter of a run."""
    end = curve[-1]["timesteps"]
    return float(np.mean([point["mean"] for point in curve if point["timesteps"] > REST * end]))


def find_times(curves: Sequence[Curve], cap: float) -> list[float]:
    """Environment steps of each run to `LEVEL` of `cap`; all of the run where it stays below."""
    return [find_time(curve, LEVEL * cap) or float(curve[-1]["timesteps"]) for curve in curves]


def find_time(curve: Curve, level: float) -> float | None:
    """Environment steps to `level`, by interpolation before the first point that has it; None if there is none."""
    before: Mapping[str, Any] = {"timesteps": 0, "mean": min(0.0, curve[0]["mean"])}
    for point in curve:
        if point["mean"] >= level:
            share = (level - before["mean"]) / (point["mean"] - before["mean"])
            return float(before["timesteps"] + share * (point["timesteps"] - before["timesteps"]))
        before = point
    return None


def read_curves(manifests: Sequence[Mapping[str, Any]], where: str) -> list[Curve]:
    """The learning curves of the policies whose manifests these are; SpecError where one has none."""
    curves: list[Curve] = [tuple(about.get("curve", ())) for about in manifests]
    if not all(curves):
        raise SpecError(f"{where}: a policy was stored without its learning curve; train it again with this version")
    return curves


def _average(values: Mapping[str, Sequence[float]]) -> Interval | None:
    """Over cells that are fixed and seeds that are not; None where one cell has fewer than two seeds."""
    rows = [np.array(row) for row in values.values()]
    if not rows or min(len(row) for row in rows) < 2 or not any(row.var() for row in rows):
        return None
    if len(rows) == 1:
        return bound_mean(rows[0])
    sizes = [len(row) for row in rows]
    spread = [row.var(ddof=1) / size for row, size in zip(rows, sizes, strict=True)]
    return average_strata([row.mean() for row in rows], spread, [size - 1 for size in sizes])


def _list_times(runs: Runs, caps: Mapping[str, float]) -> list[str]:
    """How long it took, a line per cell."""
    lines = []
    for cell, pair in runs.items():
        level = LEVEL * caps[cell]
        reached = [sum(find_time(curve, level) is not None for curve in curves) for curves in pair]
        steps = [float(np.mean(find_times(curves, caps[cell]))) for curves in pair]
        lines.append(
            f"{cell}: {steps[0]:,.0f} steps to a return of {level:g} in fp32, {steps[1]:,.0f} in mixed precision; "
            f"reached by {reached[0]} and {reached[1]} of {len(pair[0])} runs"
        )
    return lines


def _conclude(
    runs: Runs,
    outcome: Outcome,
    interval: Interval | None,
    threshold: float,
    caveats: Sequence[str],
    missing: Sequence[str],
) -> Verdict:
    seeds = min((len(pair[0]) for pair in runs.values()), default=0)
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=None if interval is None else interval.estimate,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        threshold=threshold,
        scope=name_scope(seeds),
        policies=seeds,
        episodes=0,
        distinct_episodes=0,
        needed="more training seeds" if outcome.open else "",
        caveats=(*caveats, *([rule_of_three(seeds)] if seeds > 1 else [])),
        missing=tuple(missing),
    )
