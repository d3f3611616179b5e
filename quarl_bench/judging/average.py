"""One sentence over many cells: the mean relative drop of a scheme, or of one scheme against another."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.pairs import (
    ANCHOR,
    SPREADLESS,
    Pairs,
    align,
    bound_guard,
    find_guard_error,
    find_se,
    is_anchored,
    pair_up,
    solve_crossing,
)
from quarl_bench.judging.retention import FEWEST, conclude, name_scope, rule_of_three
from quarl_bench.judging.statistics import Floats, Interval
from quarl_bench.judging.tasks import TaskMean
from quarl_bench.spec import Measurement, Outcome, Verdict

Caps = Mapping[str, float | None]  # highest possible returns by cell, where there are
NO_CAPS: Caps = MappingProxyType({})


def judge_mean_error(
    cells: Mapping[str, tuple[Measurement, Measurement]],
    *,
    threshold: float = 0.05,
    caps: Caps = NO_CAPS,
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "the mean over tasks of the signed relative drop is below `threshold`".

    `cells` maps a cell's id to (reference, candidate). Estimate, interval and threshold are that mean drop, positive
    when candidates are worse; `caps` are the highest possible returns, where there are. With several policies per task
    the tasks are fixed (stratified Welch); with one, only t over tasks is left. `policies` and `episodes` are the
    fewest of any cell. With cells `missing` the outcome is partial and the numbers are those of the cells that are
    there. Raises SpecError and QuarlError as `judge_retention`, and SpecError when there is no cell at all.
    """
    return _judge_average(
        cells,
        -math.inf,
        threshold,
        missing,
        lambda name, got: pair_up(got[0], got[1], got[0], caps.get(name), census=cells[name][0].census),
    )


def judge_equivalence(
    cells: Mapping[str, tuple[Measurement, Measurement, Measurement]],
    *,
    margin: float = 0.05,
    caps: Caps = NO_CAPS,
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "two schemes have the same mean relative error": the mean difference lies within +-margin.

    `cells` maps a cell's id to (reference, first, second); estimate and interval are the mean over tasks of error of
    the first minus error of the second, threshold is `margin`. Two one-sided tests: supported when the whole interval
    lies within +-margin, refuted when it lies wholly outside. Otherwise, and in its errors, as `judge_mean_error`.
    """

    def pair(name: str, got: tuple[Floats, ...]) -> Pairs:
        pairs = pair_up(got[2], got[1], got[0], caps.get(name), census=cells[name][0].census)
        return replace(pairs, unseen_gain=pairs.unseen_loss)  # the cap is no limit to what one scheme gains on another

    return _judge_average(cells, -margin, margin, missing, pair)


@dataclass(frozen=True)
class _Drop:
    """Drop of one cell, with the variance of its estimate seen from above and from below."""

    estimate: float
    upward: float
    downward: float
    policies: int


def _measure_drop(pairs: Pairs) -> _Drop:
    """Linearised (delta method) variance of a cell's drop; a tied cell counts at least its guard's distance.

    Turning a limit's distance into a variance, by the normal quantile of the limit's level, so that limits of different
    cells can be added in squares, is the method of variance estimates recovery.
    """
    drop, policies = pairs.drop, pairs.policies
    if policies == 1:
        return _Drop(drop, 0.0, 0.0, policies)
    variance = find_se(pairs.contrast(drop), census=pairs.census) ** 2 / pairs.level**2
    if not pairs.tied:
        return _Drop(drop, variance, variance, policies)
    high = solve_crossing(lambda m: bound_guard(pairs, m)[0], drop)
    low = solve_crossing(lambda m: bound_guard(pairs, m)[1], drop)
    above = (high - drop) / stats.find_t_quantile(math.inf, find_guard_error(policies, census=pairs.census))
    below = (drop - low) / stats.find_t_quantile(math.inf)
    return _Drop(drop, max(variance, above**2), max(variance, below**2), policies)


def measure_gain(reference: Measurement, measured: Measurement, other: Measurement) -> TaskMean | None:
    """What a scheme loses less than another on one cell, as its policies show; None of one policy alone."""
    base, kept, lost = align(reference, measured, other)
    if base.shape[0] < 2 or base.shape[1] < 2:
        return None
    found = _measure_drop(pair_up(kept, lost, base, census=reference.census))
    return TaskMean(found.estimate, max(found.upward, found.downward), found.policies - 1)


def compare_spreads(measured: Measurement, other: Measurement) -> float | None:
    """The SD over policies of mean returns, relative to that of another scheme; None where either is 0, or unknown."""
    means = [returns.mean(axis=1) for returns in align(measured, other)]
    if len(means[0]) < 2 or any(np.ptp(each) <= SPREADLESS * np.abs(each).max() for each in means):
        return None
    return float(means[0].std(ddof=1) / means[1].std(ddof=1))


def _average(drops: Sequence[_Drop]) -> Interval | None:
    """Interval for the mean drop over cells; None when the data give none."""
    means = [d.estimate for d in drops]
    if not drops or not all(math.isfinite(d.upward + d.downward) for d in drops):
        return None
    if min(d.policies for d in drops) > 1:
        dofs = [d.policies - 1 for d in drops]
        low = stats.average_strata(means, [d.downward for d in drops], dofs).low
        interval = stats.average_strata(means, [d.upward for d in drops], dofs)._replace(low=low)
    elif len(drops) > 1:
        interval = stats.bound_mean(means)
    else:
        return None
    return interval if interval.high - interval.low > SPREADLESS else None


def _judge_average(
    cells: Mapping[str, tuple[Measurement, ...]],
    lower: float,
    upper: float,
    missing: Sequence[str],
    pair: Callable[[str, tuple[Floats, ...]], Pairs],
) -> Verdict:
    if not cells and not missing:
        raise SpecError("no cells to average; name at least one")
    if not math.isfinite(upper) or upper < 0.0:
        raise SpecError(f"threshold or margin {upper!r}: it must be a finite number of at least 0")
    drops, caveats, needed = [], [], []
    for name, measurements in cells.items():
        arrays = align(*measurements, cell=name)
        pairs = pair(name, arrays) if arrays[0].shape[1] > 1 or measurements[0].census else None
        if pairs is None or not is_anchored(pairs):
            reason = "one distinct episode" if pairs is None else f"mean return within {ANCHOR:g} standard errors of 0"
            caveats.append(f"no interval: {name} has {'' if pairs is None else 'a '}{reason}")
            needed.append(f"{name}: {'more episodes' if pairs is None else 'policies that return more or less than 0'}")
        else:
            drops.append(_measure_drop(pairs))
            if pairs.tied and not pairs.exact:
                caveats.append(f"{name}: assumes that no unseen episode loses more than {pairs.unseen_loss:g}")
    complete = len(drops) == len(cells)
    interval = _average(drops) if complete else None
    firsts = [group[0] for group in cells.values()]
    policies = min((len(m.policies) for m in firsts), default=0)
    if policies == 1:
        caveats.append("one policy per task: the tasks count as a sample of tasks")
    elif drops:
        caveats += ["says nothing about other tasks", rule_of_three(policies)]
    outcome = conclude(None if interval is None else interval[1:], lower, upper)
    estimate = float(np.mean([d.estimate for d in drops])) if drops and complete else None
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=estimate,
        low=None if interval is None else interval.low,
        high=None if interval is None else interval.high,
        threshold=upper,
        scope=name_scope(policies),
        policies=policies,
        episodes=min((len(m.environment_seeds) for m in firsts), default=0),
        distinct_episodes=min((m.distinct_episodes for m in firsts), default=0),
        needed=(_plan_average(drops, lower, upper) if complete else "; ".join(needed)) if outcome.open else "",
        caveats=tuple(caveats),
        missing=tuple(missing),
    )


def _plan_average(drops: Sequence[_Drop], lower: float, upper: float) -> str:
    if not drops or min(d.policies for d in drops) == 1:
        return f"at least {FEWEST} policies per task"
    mean = float(np.mean([d.estimate for d in drops]))
    effect = min(abs(mean - edge) for edge in (lower, upper) if math.isfinite(edge))
    spread = sum(max(d.upward, d.downward) * d.policies for d in drops) / len(drops) ** 2
    count = stats.count_policies(effect, spread, strata=len(drops))
    wanted = "more than 1000" if count is None else f"about {max(count, FEWEST)}"
    return f"{wanted} policies per task if the true mean is {mean:.3f}"
