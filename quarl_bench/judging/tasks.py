"""Sentences about tasks: whether something holds on a typical one, or, where there are few, on those that are there.

Tasks are the units of a sign-flip test, which needs five. On two to four tasks the policies within them are the units:
the verdict is then about these tasks alone.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from scipy.optimize import brentq

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.retention import conclude
from quarl_bench.spec import Outcome, Verdict

NO_SPREAD = 1e-9  # of logarithms: equal ratios give no interval
DIGITS = 9  # of the ends of an interval, which are found to twelve: a tie with the threshold is then exactly one
FLIPPED = 5  # tasks from which a sign-flip test can decide
FEWEST_TASKS = 6  # fewer ranks cannot be surprising enough to be worth a claim
Value = TypeVar("Value")
ALGORITHMS_DIFFER = "algorithms differ in network size, initialisation and steps as well"


@dataclass(frozen=True)
class TaskMean:
    """What the policies of one task show: a mean over them, the variance of that mean, its degrees of freedom."""

    mean: float
    variance: float
    dof: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "TaskMean | None":
        """From one value for each policy; None for fewer than two."""
        count = len(values)
        return cls(float(np.mean(values)), float(np.var(values, ddof=1)) / count, count - 1) if count > 1 else None

    @classmethod
    def of_ratio(cls, above: Sequence[float], below: Sequence[float]) -> "TaskMean | None":
        """The logarithm of a ratio of means of two groups of policies (delta method, Welch and Satterthwaite)."""
        means = [each for values in (above, below) if (each := cls.of(values)) is not None]
        if len(means) < 2:
            return None
        variance, dof = stats.add_variances([m.variance / m.mean**2 for m in means], [m.dof for m in means])
        return cls(math.log(means[0].mean / means[1].mean), variance, dof)


def average_tasks(values: Mapping[str, float]) -> dict[str, float]:
    """By task, the mean over the cells `<algo>-<task>...`: algorithms on one task are no two draws of a task."""
    return {task: float(np.mean(group)) for task, group in _group(values).items()}


def pool_tasks(within: "Within") -> dict[str, TaskMean | None]:
    """The same of what is within the cells, whose policies are independent."""
    return {task: _pool(group) for task, group in _group(within).items()}


def _group(values: Mapping[str, Value]) -> dict[str, list[Value]]:
    groups: dict[str, list[Value]] = defaultdict(list)
    for name, value in values.items():
        groups[name.split("-")[1]].append(value)
    return groups


def _pool(group: Sequence[TaskMean | None]) -> TaskMean | None:
    known = [each for each in group if each is not None]
    if len(known) < len(group):
        return None
    variance, dof = stats.add_variances([m.variance / len(known) ** 2 for m in known], [m.dof for m in known])
    return TaskMean(float(np.mean([each.mean for each in known])), variance, dof)


Within = Mapping[str, TaskMean | None]  # by task
NOTHING_WITHIN: Within = MappingProxyType({})


def judge_wider(
    ratios: Mapping[str, float],
    *,
    policies: int,
    missing: Sequence[str] = (),
    threshold: float = 1.0,
    caveat: str = ALGORITHMS_DIFFER,
    within: Within = NOTHING_WITHIN,
) -> Verdict:
    """Judge "one algorithm's weights are wider than another's on a typical task", or another ratio above `threshold`.

    `ratios` maps a task to the ratio of their spreads, averaged over policies. Exact sign-flip test on the logarithms,
    whose inversion gives the interval of the typical ratio: tasks, not policies, are the units. On fewer than five
    tasks it is about these, by what the logarithms do `within` them. SpecError for a ratio that is not positive and
    finite, or when there is no task at all.
    """
    if not ratios and not missing:
        raise SpecError("no tasks to compare; name at least one")
    if not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values()):
        raise SpecError(f"spread ratios {dict(ratios)} must be positive and finite")
    logs = {task: math.log(ratio) for task, ratio in ratios.items()}
    verdict = _judge_mean(logs, policies, missing, round(math.log(threshold), DIGITS), within)
    estimate, low, high = (None if x is None else math.exp(x) for x in (verdict.estimate, verdict.low, verdict.high))
    caveats = (f"above 1 in {sum(log > 0 for log in logs.values())} of {len(logs)} tasks", caveat)
    return replace(verdict, estimate=estimate, low=low, high=high, threshold=threshold, caveats=caveats)


def judge_gains(
    gains: Mapping[str, float],
    *,
    policies: int,
    missing: Sequence[str] = (),
    threshold: float = 0.0,
    notes: Sequence[str] = (),
    within: Within = NOTHING_WITHIN,
) -> Verdict:
    """Judge "one scheme loses less than another on a typical task", by more than `threshold`.

    `gains` maps a task to the other scheme's relative error minus this one's. Exact sign-flip test on them, whose
    inversion gives the interval of the typical gain. Tasks, not policies, are the units; equal ones count against
    nobody. Fewer than five are judged as by `judge_wider`.
    """
    better, equal = sum(gain > 0 for gain in gains.values()), sum(gain == 0 for gain in gains.values())
    caveats = (f"better in {better}, equal in {equal} of {len(gains)} tasks", *notes)
    return replace(_judge_mean(gains, policies, missing, threshold, within), caveats=caveats)


def judge_order(
    correlations: Mapping[str, float],
    *,
    policies: int,
    missing: Sequence[str] = (),
    threshold: float = 0.0,
    within: Within = NOTHING_WITHIN,
) -> Verdict:
    """Judge "the one falls with the other on a typical task" from a rank correlation per task, like `judge_gains`."""
    positive = sum(value > 0 for value in correlations.values())
    caveats = (f"positive in {positive} of {len(correlations)} tasks",)
    return replace(_judge_mean(correlations, policies, missing, threshold, within), caveats=caveats)


def judge_tracks(
    points: Mapping[str, tuple[float, float]],
    *,
    policies: int,
    missing: Sequence[str] = (),
    threshold: float = 0.05,
    notes: Sequence[str] = (),
) -> Verdict:
    """Judge "the error grows with the spread of the weights": Spearman's rank correlation over tasks is positive.

    `points` maps a task to (spread, relative error). One-sided permutation test at level `threshold`, exact for few
    tasks; refuted when the same test finds a negative correlation. The estimate is the correlation; a rank
    correlation of so few tasks has no useful interval. Fewer than six tasks cannot decide.
    """
    spreads, errors = (np.array([point[i] for point in points.values()]) for i in (0, 1))
    outcome, rho, weights = Outcome.UNDECIDABLE, None, (1.0, 1.0)
    if len(points) >= FEWEST_TASKS:
        outcome = Outcome.INCONCLUSIVE
        rho, weights = stats.correlate_ranks(spreads, errors)
        outcome = Outcome.SUPPORTED if weights[0] <= threshold else outcome
        outcome = Outcome.REFUTED if weights[1] <= threshold else outcome
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=rho,
        low=None,
        high=None,
        threshold=threshold,
        scope="tasks like these",
        policies=policies,
        episodes=0,
        distinct_episodes=0,
        needed="" if len(points) >= FEWEST_TASKS else f"at least {FEWEST_TASKS} tasks; {len(points)} are here",
        caveats=(f"permutation p-value {weights[0]:.3g} over {len(points)} tasks", *notes),
        missing=tuple(missing),
    )


def _judge_mean(
    values: Mapping[str, float], policies: int, missing: Sequence[str], threshold: float, within: Within
) -> Verdict:
    """Judge "the mean over tasks is above `threshold`", still without caveats."""
    array = np.array([*values.values()])
    found = _bound(array, [within.get(task) for task in values])
    low, high = found.interval or (None, None)
    outcome = conclude(found.interval, threshold, math.inf)
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=float(array.mean()) if len(array) else None,
        low=low,
        high=high,
        threshold=threshold,
        scope=found.scope,
        policies=policies,
        episodes=0,
        distinct_episodes=0,
        needed=found.find_needed(outcome),
        missing=tuple(missing),
    )


@dataclass(frozen=True)
class _Bounds:
    """An interval of the mean over tasks, if there is one, and what it is about."""

    interval: tuple[float, float] | None
    tasks: int
    few: bool  # so few that the policies within them are the units

    @property
    def scope(self) -> str:
        """Tasks like these, or these."""
        return f"these {self.tasks} tasks" if self.few and self.interval else "tasks like these"

    def find_needed(self, outcome: Outcome) -> str:
        """What would decide; nothing where it is decided."""
        if self.interval is not None and self.few:
            return f"more policies, or {FLIPPED} tasks" if outcome is Outcome.INCONCLUSIVE else ""
        return "" if self.tasks >= FLIPPED else f"two policies of each task, or {FLIPPED} tasks; {self.tasks} are here"


def _bound(values: stats.Floats, within: Sequence[TaskMean | None]) -> _Bounds:
    """By sign flips over tasks (T,), or, of few, stratified by what is `within` each."""
    tasks = len(values)
    if tasks >= FLIPPED or not tasks:
        return _Bounds(_invert_flips(values) if tasks else None, tasks, few=False)
    known = [each for each in within if each is not None]
    interval = None
    if len(known) == tasks and any(each.variance > 0 for each in known):
        means, variances, dofs = zip(*((each.mean, each.variance, each.dof) for each in known), strict=True)
        _, *ends = stats.average_strata(means, variances, dofs)
        interval = round(ends[0], DIGITS), round(ends[1], DIGITS)
    return _Bounds(interval, tasks, few=True)


def _invert_flips(values: stats.Floats) -> tuple[float, float] | None:
    """Centres that the two one-sided sign-flip tests do not reject at 5%; None where they reject nothing."""
    width = float(np.abs(values).max()) + 1.0

    def excess(centre: float, side: int) -> float:
        return stats.flip_signs(values - centre)[side] - stats.ERROR

    low, high = float(values.min()) - width, float(values.max()) + width
    if excess(low, 0) >= 0 or excess(high, 1) >= 0 or np.ptp(values) < NO_SPREAD:
        return None
    middle = float(values.mean())
    ends = brentq(lambda c: excess(c, 0), low, middle), brentq(lambda c: excess(c, 1), middle, high)
    return round(ends[0], DIGITS), round(ends[1], DIGITS)
