"""From a claim's item to what its judgement decides on: measurements per cell, weights or curves, from the store."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import MissingBaseline, MissingExtra, SpecError
from quarl_bench.experiments.cells import Cells, PolicySet
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.claim import JudgedClaim
from quarl_bench.judging.convergence import Curve, read_curves
from quarl_bench.judging.exploration import FULL_PRECISION_BITS, Arm, Comparison, compare_arms, order_arms, read_arm
from quarl_bench.judging.pairs import ANCHOR, align, is_anchored, pair_up
from quarl_bench.judging.tasks import TaskMean
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.weight_statistics import Histogram, draw_pooled, pool_weights, relative_rmse
from quarl_bench.quantization.weight_statistics import measure_spread as measure_values
from quarl_bench.spec import Case, Measurement, Source

RELATIVE_RMSE_SCHEME = "w8"
ABSENT = (MissingBaseline, MissingExtra, SpecError)  # SpecError: no recipe yet for a cell of the paper
Measured = Mapping[str, tuple[Measurement, ...]]  # by cell: fp32, the scheme, and what it is compared with


@dataclass(frozen=True)
class Evidence:
    """What an item's judgement decides on: measurements, fp32 first, or a number per cell.

    `ratios` are of this algorithm's spread over the other's, or of fp32's peakedness over an arm's; `orders` are rank
    correlations of bits and peakedness; `within` says of either, by cell, how it varies over training seeds. `curves`
    holds, per cell and arm, the points that they were computed from, in the states called `states`. `runs` are learning
    curves per cell and precision of training, fp32's first, one per training seed. `histograms` shows, per task and
    algorithm, all weights of the first policy. `own` is what a paper's judgement collected for itself, `beside` what
    the page shows beside it, `hashes` the policies it rests on, by case.
    """

    measurements: dict[str, tuple[Measurement, ...]] = field(default_factory=dict)  # argmax; `sampled` is inside
    spreads: dict[str, float] = field(default_factory=dict)  # of the fp32 weights, per cell, where it is asked for
    ratios: dict[str, float] = field(default_factory=dict)
    within: dict[str, TaskMean | None] = field(default_factory=dict)
    orders: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    states: str = ""
    runs: dict[str, dict[str, list[Curve]]] = field(default_factory=dict)
    histograms: dict[str, dict[str, Histogram]] = field(default_factory=dict)
    own: Any = None
    beside: Any = None
    hashes: dict[str, list[str]] = field(default_factory=dict)
    source: Source = Source.MEASURED
    policies: int = 0
    missing: tuple[str, ...] = ()

    def split_modes(self) -> list[Measured]:
        """The measurements with argmax actions and, where some cell has them, with sampled ones."""
        modes: list[Measured] = [self.measurements]
        if any(measurement.sampled for group in self.measurements.values() for measurement in group):
            modes.append({name: tuple(m.sampled or m for m in group) for name, group in self.measurements.items()})
        return modes

    def find_caps(self, item: JudgedClaim) -> dict[str, float | None]:
        """The highest possible returns of the cells that were measured, None where there is none."""
        cases = (case for case in item.cases if case.id in self.measurements)
        return {case.id: find_environment(case.environment).cap for case in cases}

    def pair_runs(self, scheme: str) -> tuple[dict[str, tuple[list[Curve], list[Curve]]], dict[str, float]]:
        """By cell the curves in fp32 and under `scheme`, and the highest returns, of which levels are shares."""
        runs = {name: (arms[FP32], arms[scheme]) for name, arms in self.runs.items()}
        return runs, {name: _require_cap(name.partition("-")[2]) for name in runs}


def collect_returns(cells: Cells, item: JudgedClaim, statistic: str = "") -> Evidence:
    """Measure every cell of `item` that has policies, training them if that is allowed; list the others.

    Per cell: fp32, the item's scheme, and the one it is compared with. With a `statistic` also the spread of weights.
    """
    measurements: dict[str, tuple[Measurement, ...]] = {}
    spreads: dict[str, float] = {}
    missing: list[str] = []
    schemes = (FP32, item.scheme, *((item.against,) if item.against else ()))
    for case in item.cases:
        policies = _find(cells, case, missing, item.against)
        if policies is None:
            continue
        try:
            quantized = [cells.quantize(policies, scheme) for scheme in schemes]
        except ABSENT:  # of a scheme that is trained
            missing.append(case.id)
            continue
        # fp32 last: every item asks for it, and another process measures it meanwhile.
        measured = [cells.measure(each) for each in reversed(quantized)]
        measurements[case.id] = tuple(reversed(measured))
        if statistic:
            spreads[case.id] = measure_spread(policies, statistic)
    fewest = min((len(group[0].policies) for group in measurements.values()), default=0)
    return Evidence(measurements, spreads, policies=fewest, missing=tuple(missing))


def collect_widths(cells: Cells, item: JudgedClaim) -> Evidence:
    """Measure every cell of `item` in fp32 and under each of its schemes; cells without all policies are `missing`."""
    measurements: dict[str, tuple[Measurement, ...]] = {}
    missing: list[str] = []
    for algo, environment in dict.fromkeys((case.algo, case.environment) for case in item.cases):
        cases = [case for case in item.cases if (case.algo, case.environment) == (algo, environment)]
        policies = _find(cells, replace(cases[0], scheme=FP32), missing)
        if policies is None:
            continue
        plain, found = cells.measure(policies), {}
        try:
            for case in cases:
                found[case.id] = plain, cells.measure(cells.quantize(policies, case.scheme))
        except ABSENT:  # of a scheme that is trained: what it would return no other width tells
            missing.append(case.id)
            continue
        measurements |= found
    fewest = min((len(group[0].policies) for group in measurements.values()), default=0)
    return Evidence(measurements, policies=fewest, missing=tuple(missing))


def split_widths(item: JudgedClaim, evidence: Evidence) -> dict[str, tuple[str, dict[int, tuple[Measurement, ...]]]]:
    """By cell, `<algo>-<environment>`: its environment, and by bits what `collect_widths` measured."""
    found: dict[str, tuple[str, dict[int, tuple[Measurement, ...]]]] = {}
    for case in item.cases:
        if case.id in evidence.measurements:
            _, curve = found.setdefault(f"{case.algo}-{case.environment}", (case.environment, {}))
            curve[Scheme.parse(case.scheme).bit_width] = evidence.measurements[case.id]
    return found


def name_flaws(measured: Measured) -> tuple[Measured, tuple[str, ...]]:
    """The cells whose mean fp32 return is a unit of an error, and a line for each of the others.

    Relative errors mean nothing where fp32's return is near 0.
    """
    reasons = {name: _find_flaw(group[0]) for name, group in measured.items()}
    notes = tuple(f"left out: {name} has {reason}" for name, reason in reasons.items() if reason)
    return {name: group for name, group in measured.items() if not reasons[name]}, notes


def measure_spread(policies: PolicySet, statistic: str) -> float:
    """Mean over the set's policies of a statistic of all weights pooled: range, std, p999 or rmse8."""
    return float(np.mean(list_spreads(policies, statistic)))


def list_spreads(policies: PolicySet, statistic: str) -> list[float]:
    """The same for each policy."""
    return [_measure_spread(_require_net(policy.net), statistic) for policy in policies.policies]


def list_present(cells: Cells, item: JudgedClaim) -> Evidence:
    """Which cases have policies; nothing is measured."""
    missing: list[str] = []
    for case in item.cases:
        try:
            cells.quantize(cells.find_policies(case), case.scheme)
        except ABSENT:
            missing.append(case.id)
    return Evidence(missing=tuple(missing))


def collect_spreads(cells: Cells, item: JudgedClaim, than: str, than_origin: str = "") -> Evidence:
    """In every task the ratio of a statistic of the weights, that of the item's scheme, over algorithm `than`'s."""
    found = Evidence()
    missing: list[str] = []
    counts: list[int] = []
    for case in item.cases:
        wide, narrow = (
            _find(cells, Case(algo, case.environment, FP32, origin), missing)
            for algo, origin in (
                (case.algo, case.origin),
                (than, than_origin or case.origin),
            )
        )
        if wide is not None and narrow is not None:
            counts += [len(wide.members), len(narrow.members)]
            above, below = (list_spreads(policies, item.scheme) for policies in (wide, narrow))
            found.ratios[case.environment] = float(np.mean(above) / np.mean(below))
            found.within[case.environment] = TaskMean.of_ratio(above, below)
            found.histograms[case.environment] = {
                " ".join(filter(None, (s.case.algo, s.case.origin))): _draw_histogram(s) for s in (wide, narrow)
            }
    return replace(found, policies=min(counts, default=0), missing=tuple(missing))


def collect_exploration(cells: Cells, item: JudgedClaim, states: str, compare: Comparison = compare_arms) -> Evidence:
    """Per cell, the learning curves of fp32 and of the judged arms; a cell counts when all of them are there."""
    missing: list[str] = []
    counts: list[int] = []
    found = Evidence(states=states)
    for algo, environment in dict.fromkeys((case.algo, case.environment) for case in item.cases):
        fp32 = Case(algo, environment, FP32)
        wanted = [case for case in item.cases if (case.algo, case.environment) == (algo, environment)]
        there = {case: arm for case in (*wanted, fp32) if (arm := _find_arm(cells, case, missing)) is not None}
        if len(there) <= len(wanted):
            continue
        seeds = min(len(arm.curves) for arm in there.values())
        arms = {case: there[case].take(seeds) for case in (fp32, *wanted)}
        name = f"{algo}-{environment}"
        if item.claim.judgement.whole:
            bits = {Scheme.parse(case.scheme).bit_width: arms[case] for case in wanted}
            orders = order_arms(bits | {FULL_PRECISION_BITS: arms[fp32]}, states)
            found.orders[name], found.within[name] = float(np.mean(orders)), TaskMean.of(orders)
        else:
            logs = compare(arms[fp32], arms[wanted[0]], states)
            found.ratios[name], found.within[name] = math.exp(np.mean(logs)), TaskMean.of(logs)
        counts.append(seeds)
        found.curves[name] = {case.origin or case.scheme: arm.list_points(states) for case, arm in arms.items()}
    return replace(found, policies=min(counts, default=0), missing=tuple(missing))


def collect_runs(cells: Cells, item: JudgedClaim) -> Evidence:
    """Per cell, the learning curves in fp32 and in the judged precision, of the training seeds that both have."""
    found = Evidence()
    missing: list[str] = []
    for case in item.cases:
        arms = {FP32: "", case.scheme: case.scheme}
        sets = {name: _find(cells, Case(case.algo, case.environment, FP32, arms[name]), missing) for name in arms}
        curves = {
            name: read_curves([member.stored.metadata for member in policies.members], case.id)
            for name, policies in sets.items()
            if policies is not None
        }
        if len(curves) == len(arms):
            seeds = min(map(len, curves.values()))
            found.runs[f"{case.algo}-{case.environment}"] = {name: group[:seeds] for name, group in curves.items()}
    return replace(found, missing=tuple(missing))


def _find_arm(cells: Cells, case: Case, missing: list[str]) -> Arm | None:
    """The arm of a case's policies; None, and listed, without policies or without their curves."""
    policies = _find(cells, case, missing)
    if policies is None:
        return None
    try:
        manifests = [member.stored.metadata for member in cells.quantize(policies, case.scheme).members]
        return read_arm(manifests, case.id)
    except ABSENT:
        missing.append(case.id)
        return None


def _find(cells: Cells, case: Case, missing: list[str], against: str = "") -> PolicySet | None:
    try:
        return cells.find_policies(case, against)
    except ABSENT:
        missing.append(case.id)
        return None


def _find_flaw(reference: Measurement) -> str:
    """Why the mean return is no unit of an error; empty where it is one."""
    (base,) = align(reference)
    if base.shape[1] < 2 and not reference.census:
        return "one distinct episode"
    anchored = is_anchored(pair_up(base, base, base, census=reference.census))
    return "" if anchored else f"an fp32 return within {ANCHOR:g} standard errors of 0, or a few more"


def _require_cap(environment: str) -> float:
    """The highest return, of which levels of a learning curve are shares."""
    cap = find_environment(environment).cap
    if cap is None or cap <= 0:
        raise SpecError(f"{environment}: convergence is judged as a share of the highest return; state its cap above 0")
    return cap


def _measure_spread(net: Net, statistic: str) -> float:
    if statistic == "rmse8":
        return relative_rmse(net, Scheme.parse(RELATIVE_RMSE_SCHEME))
    return float(getattr(measure_values(pool_weights(net)), statistic))


def _draw_histogram(policies: PolicySet) -> Histogram:
    return draw_pooled(_require_net(policies.policies[0].net))


def _require_net(net: object) -> Net:
    if not isinstance(net, Net):
        raise SpecError(f"weights of a {type(net).__name__} cannot be compared; use fp32 policies")
    return net
