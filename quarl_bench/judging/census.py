"""Sentences about how many cells something holds in: the cells are counted, the noise is within them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.average import NO_CAPS, Caps
from quarl_bench.judging.retention import name_scope, retention_p_values
from quarl_bench.spec import Measurement, Outcome, Verdict


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
    found = find_share(weights)
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
    share = find_share(weights, len(missing))
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


def find_share(weights: Sequence[tuple[float, float]], missing: int = 0) -> tuple[float, float] | None:
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
