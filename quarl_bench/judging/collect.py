"""From a claim item to what its rule judges: measurements per cell, or weight spreads per task, from the store."""

from dataclasses import dataclass, field, replace

import numpy as np

from quarl_bench.errors import MissingBaseline, MissingExtra, SpecError
from quarl_bench.experiments.cells import FP32, MOST, Cells, PolicySet
from quarl_bench.judging.catalog import JudgedClaim
from quarl_bench.judging.convergence import Curve, read_curves
from quarl_bench.judging.exploration import FULL_PRECISION_BITS, Arm, compare_arms, order_arms, read_arm
from quarl_bench.judging.rules import RULES, AxisKind
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.weight_statistics import Histogram, WeightStatistics, list_histograms, measure_weights
from quarl_bench.spec import Case, Measurement

RELATIVE_RMSE_SCHEME = "w8"
ABSENT = (MissingBaseline, MissingExtra, SpecError)  # SpecError: no recipe yet for a cell of the paper


@dataclass(frozen=True)
class MeasuredCells:
    """What a claim item judges: measurements, fp32 first, or a number per cell.

    `ratios` are of this algorithm's spread over the other's, or of fp32's peakedness over an arm's; `orders` are rank
    correlations of bits and peakedness; `curves` holds, per cell and arm, the points that they were computed from.
    `runs` are learning curves per cell and precision of training, fp32's first, one per training seed.
    `histograms` shows, per task and algorithm, all weights of the first policy.
    """

    measurements: dict[str, tuple[Measurement, ...]] = field(default_factory=dict)  # argmax; `sampled` is inside
    spreads: dict[str, float] = field(default_factory=dict)  # of the fp32 weights, per cell, where the rule asks
    ratios: dict[str, float] = field(default_factory=dict)
    orders: dict[str, float] = field(default_factory=dict)
    curves: dict[str, dict[str, list[dict[str, float]]]] = field(default_factory=dict)
    runs: dict[str, dict[str, list[Curve]]] = field(default_factory=dict)
    histograms: dict[str, dict[str, Histogram]] = field(default_factory=dict)
    policies: int = 0
    missing: tuple[str, ...] = ()


def collect(cells: Cells, judged: JudgedClaim) -> MeasuredCells:
    """Measure every cell of `judged` that has policies, training them if that is allowed; list the others."""
    if judged.claim.rule == "wider":
        return _collect_spreads(cells, judged)
    if judged.claim.rule == "count":
        return _count(cells, judged)
    rule = RULES[judged.claim.rule]
    if rule.curves:
        return (_collect_curves if rule.against is AxisKind.STATES else _collect_runs)(cells, judged)
    measurements: dict[str, tuple[Measurement, ...]] = {}
    spreads: dict[str, float] = {}
    missing: list[str] = []
    tracks = judged.claim.rule == "tracks"
    schemes = (FP32, judged.scheme, *((judged.against,) if judged.against else ()))
    for case in judged.cases:
        policies = _find(cells, case, missing)
        if policies is None:
            continue
        try:
            quantized = [cells.quantize(policies, scheme) for scheme in schemes]
        except ABSENT:  # of a scheme that is trained
            missing.append(case.id)
            continue
        measurements[case.id] = tuple(cells.measure(each) for each in quantized)
        if tracks:
            spreads[case.id] = measure_spread(policies, judged.claim.against)
    fewest = min((len(group[0].policies) for group in measurements.values()), default=0)
    return MeasuredCells(measurements, spreads, policies=fewest, missing=tuple(missing))


def measure_spread(policies: PolicySet, statistic: str) -> float:
    """Mean over the set's policies of a statistic of all weights pooled: range, std, p999 or rmse8."""
    return float(np.mean([_read(_pool(policy.net), statistic) for policy in policies.policies]))


def _count(cells: Cells, judged: JudgedClaim) -> MeasuredCells:
    """Which cases have policies; nothing is measured."""
    missing: list[str] = []
    for case in judged.cases:
        try:
            cells.quantize(cells.find_policies(case), case.scheme)
        except ABSENT:
            missing.append(case.id)
    return MeasuredCells(missing=tuple(missing))


def _collect_spreads(cells: Cells, judged: JudgedClaim) -> MeasuredCells:
    found = MeasuredCells()
    missing: list[str] = []
    counts: list[int] = []
    for case in judged.cases:
        wide, narrow = (
            _find(cells, Case(algo, case.environment, FP32, origin), missing)
            for algo, origin in (
                (case.algo, case.origin),
                (judged.claim.against, judged.claim.against_origin or case.origin),
            )
        )
        if wide is not None and narrow is not None:
            counts += [len(wide.members), len(narrow.members)]
            spreads = [measure_spread(policies, judged.scheme) for policies in (wide, narrow)]
            found.ratios[case.environment] = spreads[0] / spreads[1]
            found.histograms[case.environment] = {
                " ".join(filter(None, (s.case.algo, s.case.origin))): _draw_histogram(s) for s in (wide, narrow)
            }
    return replace(found, policies=min(counts, default=0), missing=tuple(missing))


def _collect_curves(cells: Cells, judged: JudgedClaim) -> MeasuredCells:
    """Per cell, the learning curves of fp32 and of the judged arms; a cell counts when all of them are there."""
    found = MeasuredCells()
    missing: list[str] = []
    counts: list[int] = []
    whole, states = judged.claim.rule == "ordered", judged.claim.against
    for algo, environment in dict.fromkeys((case.algo, case.environment) for case in judged.cases):
        wanted = [case for case in judged.cases if (case.algo, case.environment) == (algo, environment)]
        others = {case: arm for case in wanted if (arm := _find_arm(cells, case, missing)) is not None}
        seeds = min((len(arm.curves) for arm in others.values()), default=MOST)
        plain = _find_arm(cells, Case(algo, environment, FP32), missing, seeds)
        if plain is None or len(others) < len(wanted):
            continue
        name = f"{algo}-{environment}"
        if whole:
            bits = {Scheme.parse(case.scheme).bit_width: arm for case, arm in others.items()}
            found.orders[name] = order_arms(bits | {FULL_PRECISION_BITS: plain}, states)
        else:
            found.ratios[name] = compare_arms(plain, others[wanted[0]], states)
        counts.append(seeds)
        arms = {Case(algo, environment, FP32): plain} | others
        found.curves[name] = {case.origin or case.scheme: arm.list_points(states) for case, arm in arms.items()}
    return replace(found, policies=min(counts, default=0), missing=tuple(missing))


def _collect_runs(cells: Cells, judged: JudgedClaim) -> MeasuredCells:
    """Per cell, the learning curves in fp32 and in the judged precision, of the training seeds that both have."""
    found = MeasuredCells()
    missing: list[str] = []
    for case in judged.cases:
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


def _find_arm(cells: Cells, case: Case, missing: list[str], most: int = MOST) -> Arm | None:
    """The arm of a case's first `most` training seeds; None, and listed, without policies or without their curves."""
    policies = _find(cells, case, missing)
    if policies is None:
        return None
    try:
        manifests = [member.stored.metadata for member in cells.quantize(policies, case.scheme).members[:most]]
        return read_arm(manifests, case.id)
    except ABSENT:
        missing.append(case.id)
        return None


def _find(cells: Cells, case: Case, missing: list[str]) -> PolicySet | None:
    try:
        return cells.find_policies(case)
    except ABSENT:
        missing.append(case.id)
        return None


def _pool(net: object) -> WeightStatistics:
    return measure_weights(_require_net(net), Scheme.parse(RELATIVE_RMSE_SCHEME))[-1]


def _draw_histogram(policies: PolicySet) -> Histogram:
    return list_histograms(_require_net(policies.policies[0].net), Scheme.parse(RELATIVE_RMSE_SCHEME))[-1]


def _require_net(net: object) -> Net:
    if not isinstance(net, Net):
        raise SpecError(f"weights of a {type(net).__name__} cannot be compared; use fp32 policies")
    return net


def _read(statistics: WeightStatistics, name: str) -> float:
    if name == "rmse8":
        return statistics.relative_rmse
    return float(getattr(statistics.spread, name))
