"""Sentences about how many cells, or tasks, something holds in: the units are counted, the noise is within them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.optimize import brentq

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.average import NO_CAPS, Caps
from quarl_bench.judging.retention import conclude, name_scope, retention_p_values
from quarl_bench.spec import Measurement, Outcome, Verdict

NO_SPREAD = 1e-9  # of logarithms: equal ratios give no interval
DIGITS = 9  # of the ends of an interval, which are found to twelve: a tie with the threshold is then exactly one
FEWEST_TASKS = 6  # fewer ranks cannot be surprising enough to be worth a claim
ALGORITHMS_DIFFER = "about a typical task; algorithms differ in network size, initialisation and steps as well"


def judge_most_cells(
    cells: Mapping[str, tuple[Measurement, Measurement]],
    *,
    margin: float = 0.05,
    share: float = 0.8,
    caps: Caps = NO_CAPS,
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "the candidate keeps more than 1 - margin of the return in at least a `share` of the cells".

    The cells are a census: the verdict is about them, not about others. Partial conjunction by Simes gives the largest
    number of cells in which retention holds, and in which it fails, each at 5%; estimate and interval are shares of
    cells. `caps` are highest possible returns, where there are. Partial with cells `missing`; SpecError when there is
    no cell at all.
    """
    weights = _cell_p_values(cells, margin, caps, missing)
    found = _find_share(weights)
    outcome = Outcome.INCONCLUSIVE
    if found is not None and found[0] >= share:
        outcome = Outcome.SUPPORTED
    elif found is not None and found[1] < share:
        outcome = Outcome.REFUTED
    verdict = _count_cells(cells, weights, found, Outcome.PARTIAL if missing else outcome, share, missing)
    return replace(verdict, scope=f"{verdict.scope}, cells that keep {1 - margin:g}")


def judge_some_cells(
    cells: Mapping[str, tuple[Measurement, Measurement]],
    *,
    threshold: float = 0.0,
    caps: Caps = NO_CAPS,
    missing: Sequence[str] = (),
) -> Verdict:
    """Judge "in some cells the candidate returns more than the reference": in a share of them above `threshold`.

    As `judge_most_cells`, but the share is of all cells, also of those `missing`, which may do either: with a threshold
    of 0 one cell supports, whatever is missing.
    """
    weights = _cell_p_values(cells, 0.0, caps, missing)
    share = _find_share(weights, len(missing))
    outcome = Outcome.PARTIAL if missing else Outcome.INCONCLUSIVE
    if share is not None and share[0] > threshold:
        outcome = Outcome.SUPPORTED
    elif share is not None and share[1] <= threshold:
        outcome = Outcome.REFUTED
    return _count_cells(cells, weights, share, outcome, threshold, missing)


def _cell_p_values(
    cells: Mapping[str, tuple[Measurement, Measurement]], margin: float, caps: Caps, missing: Sequence[str]
) -> list[tuple[float, float]]:
    """One-sided p-values of each cell: it keeps more than 1 - margin of the return, and less."""
    if not cells and not missing:
        raise SpecError("no cells to count; name at least one")
    return [retention_p_values(*pair, margin=margin, cap=caps.get(name)) for name, pair in cells.items()]


def _find_share(weights: Sequence[tuple[float, float]], missing: int = 0) -> tuple[float, float] | None:
    """Interval of the share of cells in which something holds, from the p-values of holding and of failing."""
    if not weights:
        return None
    holds, fails = (count_certain([pair[side] for pair in weights]) for side in (0, 1))
    n = len(weights) + missing
    return holds / n, 1.0 - fails / n


def _count_cells(
    cells: Mapping[str, tuple[Measurement, Measurement]],
    weights: Sequence[tuple[float, float]],
    share: tuple[float, float] | None,
    outcome: Outcome,
    threshold: float,
    missing: Sequence[str],
) -> Verdict:
    n, firsts = len(cells), [reference for reference, _ in cells.values()]
    policies = min((len(m.policies) for m in firsts), default=0)
    return Verdict(
        outcome=outcome,
        estimate=float(np.mean([up < down for up, down in weights])) if n else None,
        low=None if share is None else share[0],
        high=None if share is None else share[1],
        threshold=threshold,
        scope=name_scope(policies),
        policies=policies,
        episodes=min((len(m.environment_seeds) for m in firsts), default=0),
        distinct_episodes=min((m.distinct_episodes for m in firsts), default=0),
        needed="more policies in the undecided cells" if outcome is Outcome.INCONCLUSIVE and n else "",
        caveats=(f"a census of {n} cells: says nothing about others",) if n else (),
        missing=tuple(missing),
    )


def judge_wider(
    ratios: Mapping[str, float],
    *,
    policies: int,
    missing: Sequence[str] = (),
    threshold: float = 1.0,
    caveat: str = ALGORITHMS_DIFFER,
) -> Verdict:
    """Judge "one algorithm's weights are wider than another's on a typical task", or another ratio above `threshold`.

    `ratios` maps a task to the ratio of their spreads, averaged over policies. Exact sign-flip test on the logarithms,
    whose inversion gives the interval of the typical ratio; fewer than five tasks cannot decide. Tasks, not policies,
    are the units. SpecError for a ratio that is not positive and finite, or when there is no task at all.
    """
    if not ratios and not missing:
        raise SpecError("no tasks to compare; name at least one")
    if not all(math.isfinite(ratio) and ratio > 0 for ratio in ratios.values()):
        raise SpecError(f"spread ratios {dict(ratios)} must be positive and finite")
    logs = np.log([*ratios.values()])
    interval = _invert_flips(logs) if len(logs) >= 5 else None
    bounds = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    outcome = conclude(interval, round(math.log(threshold), DIGITS), math.inf)
    return Verdict(
        outcome=Outcome.PARTIAL if missing else outcome,
        estimate=math.exp(float(logs.mean())) if len(logs) else None,
        low=None if bounds is None else bounds[0],
        high=None if bounds is None else bounds[1],
        threshold=threshold,
        scope="tasks like these",
        policies=policies,
        episodes=0,
        distinct_episodes=0,
        needed="" if len(logs) >= 5 else f"at least 5 tasks; {len(logs)} are here",
        caveats=(
            f"above 1 in {int((logs > 0).sum())} of {len(logs)} tasks",
            caveat,
        ),
        missing=tuple(missing),
    )


def judge_gains(
    gains: Mapping[str, float],
    *,
    policies: int,
    missing: Sequence[str] = (),
    threshold: float = 0.0,
    notes: Sequence[str] = (),
) -> Verdict:
    """Judge "one scheme loses less than another on a typical task", by more than `threshold`.

    `gains` maps a task to the other scheme's relative error minus this one's. Exact sign-flip test on them, whose
    inversion gives the interval of the typical gain. Tasks, not policies, are the units; equal ones count against
    nobody, and fewer than five cannot decide.
    """
    values = np.array([*gains.values()])
    interval = _invert_flips(values) if len(values) >= 5 else None
    return Verdict(
        outcome=Outcome.PARTIAL if missing else conclude(interval, threshold, math.inf),
        estimate=float(values.mean()) if len(values) else None,
        low=None if interval is None else interval[0],
        high=None if interval is None else interval[1],
        threshold=threshold,
        scope="tasks like these",
        policies=policies,
        episodes=0,
        distinct_episodes=0,
        needed="" if len(values) >= 5 else f"at least 5 tasks; {len(values)} are here",
        caveats=(
            f"better in {int((values > 0).sum())}, equal in {int((values == 0).sum())} of {len(values)} tasks",
            *notes,
        ),
        missing=tuple(missing),
    )


def judge_order(
    correlations: Mapping[str, float], *, policies: int, missing: Sequence[str] = (), threshold: float = 0.0
) -> Verdict:
    """Judge "the one falls with the other on a typical task" from a rank correlation per task, like `judge_gains`."""
    verdict = judge_gains(correlations, policies=policies, missing=missing, threshold=threshold)
    values = [*correlations.values()]
    return replace(verdict, caveats=(f"positive in {sum(value > 0 for value in values)} of {len(values)} tasks",))


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
    outcome, rho, weights = Outcome.INCONCLUSIVE, None, (1.0, 1.0)
    if len(points) >= FEWEST_TASKS:
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


def judge_count(present: int, *, threshold: float, missing: Sequence[str] = ()) -> Verdict:
    """Judge "more than `threshold` experiments": cases that have policies, which nobody needs an interval for."""
    return Verdict(
        outcome=Outcome.SUPPORTED if present > threshold else Outcome.PARTIAL if missing else Outcome.REFUTED,
        estimate=float(present),
        low=None,
        high=None,
        threshold=threshold,
        scope="cases of the catalog",
        policies=0,
        episodes=0,
        distinct_episodes=0,
        needed=f"policies for {len(missing)} more cases" if missing else "",
        caveats=(f"{present} of {present + len(missing)} cases have policies",),
        missing=tuple(missing),
    )


def count_certain(p_values: Sequence[float]) -> int:
    """Largest number of cells for which "at least so many are true" holds at 5%."""
    return max((u for u in range(1, len(p_values) + 1) if stats.combine_cells(p_values, u) < stats.ERROR), default=0)


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
