"""From a claim's rule to the judgement that applies it, and what a refuted claim raises."""

from quarl_bench.claims.average import judge_equivalence, judge_mean_error
from quarl_bench.claims.catalog import JudgedCase, JudgedClaim
from quarl_bench.claims.census import judge_most_cells, judge_wider
from quarl_bench.claims.collect import MeasuredCells
from quarl_bench.claims.verdict import judge_retention, weigh_retention
from quarl_bench.rl.environments import find_environment
from quarl_bench.spec import Measurement, Verdict


class ClaimRefuted(AssertionError):
    """The interval lies wholly on the wrong side of the claim's threshold."""


def judge_case(judged: JudgedCase, reference: Measurement, measured: Measurement) -> Verdict:
    """The verdict on one cell."""
    cap = find_environment(judged.case.environment).cap
    return judge_retention(reference, measured, margin=judged.claim.threshold, cap=cap)


def weigh_case(judged: JudgedCase, reference: Measurement, measured: Measurement) -> tuple[float, float]:
    """One-sided p-values of "supported" and of "refuted", for false discovery rates over many cells."""
    cap = find_environment(judged.case.environment).cap
    return weigh_retention(reference, measured, margin=judged.claim.threshold, cap=cap)


def judge_claim(judged: JudgedClaim, cells: MeasuredCells) -> Verdict:
    """The verdict on one sentence over many cells."""
    rule, threshold, missing = judged.claim.rule, judged.claim.threshold, cells.missing
    if rule == "wider":
        return judge_wider(cells.ratios, policies=cells.policies, missing=missing)
    if rule == "equivalence":
        triples = {name: (m[0], m[1], m[2]) for name, m in cells.measurements.items()}
        return judge_equivalence(triples, margin=threshold, missing=missing)
    pairs = {name: (m[0], m[1]) for name, m in cells.measurements.items()}
    if rule == "most_cells":
        return judge_most_cells(pairs, margin=threshold, missing=missing)
    return judge_mean_error(pairs, threshold=threshold, missing=missing)


def describe(verdict: Verdict) -> str:
    """One line: estimate, interval, threshold, outcome, and what it rests on."""
    numbers = "no interval"
    if verdict.estimate is not None and verdict.low is not None and verdict.high is not None:
        numbers = f"{verdict.estimate:.4g} [{verdict.low:.4g}, {verdict.high:.4g}]"
    basis = f"{verdict.policies} policies"
    if verdict.episodes:
        basis = f"{verdict.policies} x {verdict.episodes} episodes ({verdict.distinct_episodes} distinct)"
    line = f"{verdict.outcome}: {numbers} against {verdict.threshold:g}, {verdict.scope}, {basis}"
    return f"{line}; {verdict.needed}" if verdict.needed else line
