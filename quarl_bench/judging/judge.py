"""From a claim's rule to the judgement that applies it, and what a refuted claim raises."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import SpecError
from quarl_bench.experiments.cells import FP32
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.average import judge_equivalence, judge_mean_error
from quarl_bench.judging.catalog import JudgedCase, JudgedClaim
from quarl_bench.judging.census import (
    judge_count,
    judge_gains,
    judge_most_cells,
    judge_order,
    judge_some_cells,
    judge_tracks,
    judge_wider,
)
from quarl_bench.judging.collect import MeasuredCells
from quarl_bench.judging.convergence import judge_convergence, judge_sooner
from quarl_bench.judging.pairs import ANCHOR, align, find_error, is_anchored, pair_up
from quarl_bench.judging.retention import judge_harder, judge_loss, judge_retention, retention_p_values, reverse
from quarl_bench.spec import Measurement, Outcome, Verdict

PROXY = "about a typical task; a proxy: nobody measured what was explored"
STRENGTH = (Outcome.REFUTED, Outcome.PARTIAL, Outcome.INCONCLUSIVE, Outcome.SUPPORTED)


class ClaimRefuted(AssertionError):
    """The interval lies wholly on the wrong side of the claim's threshold."""


def judge_case(judged: JudgedCase, reference: Measurement, measured: Measurement) -> Verdict:
    """The verdict on one cell: the weaker one, where it was measured with sampled actions as well.

    Two chances to refute make no more errors than one: unless both ways of acting refute, one has to at half the error.
    """
    cap, margin = find_environment(judged.case.environment).cap, judged.claim.threshold
    modes = _split_modes(reference, measured)
    verdicts = [judge_retention(before, after, margin=margin, cap=cap) for before, after in modes]
    found = _weaker([reverse(verdict) for verdict in verdicts] if judged.claim.rule == "drops" else verdicts)
    alone = len(modes) > 1 and found.outcome is Outcome.REFUTED
    if alone and case_p_values(judged, reference, measured)[1] >= stats.ERROR:
        needed = "more policies: one way of acting alone refutes it, and not at 2.5%"
        found = replace(found, outcome=Outcome.INCONCLUSIVE, needed=needed)
    return found


def case_p_values(judged: JudgedCase, reference: Measurement, measured: Measurement) -> tuple[float, float]:
    """One-sided p-values of "supported" and of "refuted", for false discovery rates over many cells.

    Supported needs both ways of acting, so the larger p-value; refuted is either one (Simes).
    """
    cap, margin = find_environment(judged.case.environment).cap, judged.claim.threshold
    modes = _split_modes(reference, measured)
    weights = [retention_p_values(before, after, margin=margin, cap=cap) for before, after in modes]
    if judged.claim.rule == "drops":
        weights = [(lost, kept) for kept, lost in weights]
    return max(w[0] for w in weights), stats.combine_cells([w[1] for w in weights], 1)


def judge_claim(judged: JudgedClaim, cells: MeasuredCells) -> Verdict:
    """The verdict on one sentence over many cells: the weaker one, where cells were measured with sampled actions too.

    Unlike in `judge_case` either way of acting refutes at 5%, so that with two up to 10% of true sentences are refuted.
    """
    rule, threshold = judged.claim.rule, judged.claim.threshold
    if rule == "wider":
        return judge_wider(cells.ratios, policies=cells.policies, missing=cells.missing, threshold=threshold)
    if rule == "flatter":
        logs = average_tasks({name: math.log(ratio) for name, ratio in cells.ratios.items()})
        ratios = {task: math.exp(mean) for task, mean in logs.items()}
        return judge_wider(ratios, policies=cells.policies, missing=cells.missing, threshold=threshold, caveat=PROXY)
    if rule == "ordered":
        orders = average_tasks(cells.orders)
        return judge_order(orders, policies=cells.policies, missing=cells.missing, threshold=threshold)
    if rule == "count":
        return judge_count(len(judged.cases) - len(cells.missing), threshold=threshold, missing=cells.missing)
    if rule in ("converges", "sooner"):
        return _judge_runs(judged, cells)
    modes = [cells.measurements]
    if any(measurement.sampled for group in cells.measurements.values() for measurement in group):
        modes.append({name: tuple(m.sampled or m for m in group) for name, group in cells.measurements.items()})
    return _weaker([_judge_cells(judged, measurements, cells) for measurements in modes])


def average_tasks(values: Mapping[str, float]) -> dict[str, float]:
    """By task, the mean over the cells `<algo>-<task>...`: algorithms on one task are no two draws of a task."""
    groups: dict[str, list[float]] = defaultdict(list)
    for name, value in values.items():
        groups[name.split("-")[1]].append(value)
    return {task: float(np.mean(group)) for task, group in groups.items()}


def _judge_runs(judged: JudgedClaim, cells: MeasuredCells) -> Verdict:
    runs = {name: (arms[FP32], arms[judged.scheme]) for name, arms in cells.runs.items()}
    caps = {name: _find_cap(name.partition("-")[2]) for name in runs}
    if judged.claim.rule == "sooner":
        return judge_sooner(runs, caps, missing=cells.missing, threshold=judged.claim.threshold)
    return judge_convergence(runs, caps, margin=judged.claim.threshold, missing=cells.missing)


def _find_cap(environment: str) -> float:
    """The highest return, of which levels of a learning curve are shares."""
    cap = find_environment(environment).cap
    if cap is None or cap <= 0:
        raise SpecError(f"{environment}: convergence is judged as a share of the highest return; state its cap above 0")
    return cap


def _judge_cells(
    judged: JudgedClaim, measurements: dict[str, tuple[Measurement, ...]], cells: MeasuredCells
) -> Verdict:
    rule, threshold, missing = judged.claim.rule, judged.claim.threshold, cells.missing
    caps = {case.id: find_environment(case.environment).cap for case in judged.cases if case.id in measurements}
    if rule in ("tracks", "gains"):
        return _judge_errors(judged, measurements, cells)
    if rule == "equivalence":
        triples = {name: (m[0], m[1], m[2]) for name, m in measurements.items()}
        return judge_equivalence(triples, margin=threshold, caps=caps, missing=missing)
    if rule == "loses":
        name, triple = next(iter(measurements.items()), ("", None))
        pair = None if triple is None else (triple[2], triple[1])
        return judge_loss(pair, margin=threshold, cap=caps.get(name), missing=missing)
    pairs = {name: (m[0], m[1]) for name, m in measurements.items()}
    if rule == "harder":
        first, second = (case.id for case in judged.cases)
        tops = (caps.get(first), caps.get(second))
        return judge_harder(pairs.get(first), pairs.get(second), threshold=threshold, caps=tops, missing=missing)
    if rule == "most_cells":
        return judge_most_cells(pairs, margin=threshold, caps=caps, missing=missing)
    if rule == "some_cells":
        return judge_some_cells(pairs, threshold=threshold, caps=caps, missing=missing)
    verdict = judge_mean_error(pairs, threshold=threshold, caps=caps, missing=missing)
    return reverse(verdict) if rule == "mean_loss" else verdict


def _judge_errors(
    judged: JudgedClaim, measurements: dict[str, tuple[Measurement, ...]], cells: MeasuredCells
) -> Verdict:
    """Of relative errors, which mean nothing where fp32's return is near 0: such cells are left out, and named."""
    threshold = judged.claim.threshold
    reasons = {name: _find_flaw(m[0]) for name, m in measurements.items()}
    anchored = {name: m for name, m in measurements.items() if not reasons[name]}
    if judged.claim.rule == "tracks":
        errors = {name: find_error(m[0], m[1]) for name, m in anchored.items()}
        points = {name: (spread, errors[name]) for name, spread in cells.spreads.items() if name in errors}
        found = judge_tracks(points, policies=cells.policies, missing=cells.missing, threshold=threshold)
    else:
        gains = {name: find_error(m[0], m[2]) - find_error(m[0], m[1]) for name, m in anchored.items()}
        found = judge_gains(average_tasks(gains), policies=cells.policies, missing=cells.missing, threshold=threshold)
    notes = (f"left out: {name} has {reason}" for name, reason in reasons.items() if reason)
    return replace(found, caveats=(*found.caveats, *notes))


def _find_flaw(reference: Measurement) -> str:
    """Why the mean return is no unit of an error; empty where it is one."""
    (base,) = align(reference)
    if base.shape[1] < 2:
        return "one distinct episode"
    anchored = is_anchored(pair_up(base, base, base))
    return "" if anchored else f"an fp32 return within {ANCHOR:g} standard errors of 0, or a few more"


def _split_modes(reference: Measurement, measured: Measurement) -> list[tuple[Measurement, Measurement]]:
    """(reference, measured) of argmax actions and, where there are, of sampled ones."""
    modes = [(reference, measured)]
    if reference.sampled is not None and measured.sampled is not None:
        modes.append((reference.sampled, measured.sampled))
    return modes


def _weaker(verdicts: list[Verdict]) -> Verdict:
    """The weakest of the verdicts on argmax and on sampled actions; the other stands in its caveats."""
    if len(verdicts) == 1:
        return verdicts[0]
    names = ("argmax", "sampled")
    chosen = min(range(len(verdicts)), key=lambda index: STRENGTH.index(verdicts[index].outcome))
    found, other = verdicts[chosen], verdicts[1 - chosen]
    note = f"of {names[chosen]} actions; {names[1 - chosen]} actions are {describe(other)}"
    return replace(found, caveats=(note, *found.caveats))


def describe(verdict: Verdict) -> str:
    """One line: estimate, interval, threshold, outcome, and what it rests on."""
    numbers = "no interval" if verdict.estimate is None else f"{verdict.estimate:.4g}, no interval,"
    if verdict.estimate is not None and verdict.low is not None and verdict.high is not None:
        numbers = f"{verdict.estimate:.4g} [{verdict.low:.4g}, {verdict.high:.4g}]"
    basis = f"{verdict.policies} policies"
    if verdict.episodes:
        basis = f"{verdict.policies} x {verdict.episodes} episodes ({verdict.distinct_episodes} distinct)"
    line = f"{verdict.outcome}: {numbers} against {verdict.threshold:g}, {verdict.scope}, {basis}"
    return f"{line}; {verdict.needed}" if verdict.needed else line
