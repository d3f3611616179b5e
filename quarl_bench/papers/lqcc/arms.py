"""Sentences about arms of many policies each that share nothing: LQCC's convergence, precision, algorithms.

Training seeds of two arms cannot be paired, so intervals are Welch's t over policies.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.judging.convergence import find_level
from quarl_bench.judging.retention import conclude
from quarl_bench.papers.lqcc.parity import (
    Returns,
    Summary,
    average_differences,
    average_estimates,
    compare,
    compare_summaries,
    from_interval,
    partial,
)
from quarl_bench.papers.lqcc.runs.tasks import limit_to
from quarl_bench.spec import Verdict

Curves = Sequence[Sequence[Mapping[str, Any]]]  # per training seed, points with timesteps and mean


def average_curves(curves: Curves, what: str) -> Returns:
    """Per seed the mean return over its learning curve: high for what learns fast, and keeps it.

    SpecError when seeds were evaluated at different steps: their curves cover different things.
    """
    steps = {tuple(point["timesteps"] for point in curve) for curve in curves}
    if len(steps) != 1 or not steps.pop():
        raise SpecError(f"{what}: its policies have no learning curves over the same steps; train them alike")
    return np.array([np.mean([point["mean"] for point in curve]) for curve in curves])


def settle_curves(curves: Curves, what: str) -> Returns:
    """Per seed the mean return over the last quarter of its learning curve; SpecError as above."""
    average_curves(curves, what)
    return np.array([find_level(curve) for curve in curves])


def judge_convergence(arms: tuple[Curves, Curves] | None, margin: float, missing: Sequence[str] = ()) -> Verdict:
    """Judge "the second arm converges as the first does": its mean over the learning curve keeps 1 - `margin`.

    Estimate, interval and threshold are ratios. Both arms have to have trained for the same steps.
    """
    if arms is None:
        return partial(1 - margin, missing)
    pair = _average_both(arms)
    found = compare(*pair)
    ratios = (1 + found.estimate, 1 + found.low, 1 + found.high)
    return from_interval(conclude(ratios[1:], 1 - margin, math.inf), ratios, 1 - margin, min(map(len, pair)))


def judge_same_learning(
    arms: tuple[Curves, Curves] | None,
    margin: float,
    missing: Sequence[str] = (),
    read: Callable[[Curves, str], Returns] = average_curves,
) -> Verdict:
    """Judge "both arms learn alike": what is read of learning curves differs by less than `margin`, either way."""
    if arms is None:
        return partial(margin, missing)
    pair = _average_both(arms, read)
    found = compare(*pair)
    return from_interval(conclude(found[1:], -margin, margin), found, margin, min(map(len, pair)))


def judge_normalization(
    tasks: Mapping[str, tuple[Summary, Summary]], threshold: float, missing: Sequence[str] = ()
) -> Verdict:
    """Judge "normalized observations return more than raw ones, by more than `threshold`, on average"; raw come first.

    Estimate and interval are shares of each task's raw return, by stratified Welch. Partial with tasks `missing`.
    """
    if not tasks:
        return partial(threshold, missing)
    pairs = list(tasks.values())
    found = average_estimates(
        [compare_summaries(*pair).estimate for pair in pairs],
        [[(group.variance / pair[0].mean ** 2, group.policies - 1) for group in pair] for pair in pairs],
    )
    lines = [f"{task}: {_describe(*pair)}" for task, pair in tasks.items()]
    policies = min(group.policies for pair in pairs for group in pair)
    outcome = conclude(found[1:], threshold, math.inf)
    return limit_to(from_interval(outcome, found, threshold, policies, ["these tasks only", *lines]), missing)


def judge_higher(
    tasks: Mapping[str, tuple[Returns, Returns, Returns]], threshold: float, missing: Sequence[str] = ()
) -> Verdict:
    """Judge "the second arm returns more than the third by more than `threshold` of the first's return", on average.

    Stratified Welch; partial with tasks `missing`.
    """
    if not tasks:
        return partial(threshold, missing)
    found = average_differences({task: (unit, [more], [less]) for task, (unit, more, less) in tasks.items()})
    lines = [f"{task}: {less.mean():.4g} and {more.mean():.4g}" for task, (_, more, less) in tasks.items()]
    policies = min(returns.size for arms in tasks.values() for returns in arms)
    outcome = conclude(found[1:], threshold, math.inf)
    return limit_to(from_interval(outcome, found, threshold, policies, ["these tasks only", *lines]), missing)


def _average_both(
    arms: tuple[Curves, Curves], read: Callable[[Curves, str], Returns] = average_curves
) -> tuple[Returns, Returns]:
    if arms[0][0][-1]["timesteps"] != arms[1][0][-1]["timesteps"]:
        raise SpecError("the two arms trained for different numbers of steps; their curves cannot be compared")
    return read(arms[0], "the first arm"), read(arms[1], "the second arm")


def _describe(raw: Summary, normalized: Summary) -> str:
    found = compare_summaries(raw, normalized)
    text = f"{raw.mean:g} to {normalized.mean:g}"
    return f"{text}, {found.estimate:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
