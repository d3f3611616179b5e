"""LQCC's sentences on its Table 3, judged for FINN's formulas and for our own designs, each on its own.

Cycles and sizes of one design are exact numbers of a model, a simulator or an estimate, without an interval over
policies. Flip-flops, watts and joules need a vendor's tools and are not judged.
"""

from collections.abc import Mapping
from dataclasses import replace

from quarl_bench.backends.fpga.explore.part import PARTS
from quarl_bench.judging.claim import JudgedClaim
from quarl_bench.judging.evidence import Evidence
from quarl_bench.papers.lqcc.hardware.architectures import ARCHITECTURES
from quarl_bench.papers.lqcc.hardware.comparison import Fit, fit_finn, fold_finn
from quarl_bench.papers.lqcc.judgements.designs import REFERENCE
from quarl_bench.spec import Outcome, Source, Verdict

SCOPE = "these designs"
VERSION = "v4"  # of the tasks, behind an architecture's name
PART = PARTS["xc7a15t"]


def print_cycles(item: JudgedClaim) -> dict[str, int]:
    """By task of the item the cycles of the printed latency at 100 MHz."""
    return {case.environment: ARCHITECTURES[name_design(case.environment)].paper_cycles for case in item.cases}


def count_finn(item: JudgedClaim) -> Evidence:
    """Cycles by FINN's formulas: of every task of the item, and of the reference."""
    names = [*(case.environment for case in item.cases), REFERENCE]
    cycles = {name: fold_finn(ARCHITECTURES[name_design(name)]).cycles for name in names}
    return Evidence(own=cycles, source=Source.ESTIMATED)


def count_sizes(item: JudgedClaim, size: str) -> Evidence:
    """By task one `size` of FINN's dataflow, the output's thresholds left out as in its estimate of what fits."""
    names = [case.environment for case in item.cases]
    flows = {name: fold_finn(ARCHITECTURES[name_design(name)], output_thresholds=False) for name in names}
    return Evidence(own={name: getattr(flow, size) for name, flow in flows.items()}, source=Source.ESTIMATED)


def fit_formulas() -> Evidence:
    """How FINN's formulas fit the 8-bit design, and that with a core of 4 bits."""
    fits = tuple(fit_finn(ARCHITECTURES[name], PART) for name in ("eightbit", REFERENCE))
    return Evidence(own=fits, source=Source.ESTIMATED)


def share_eight_bits(item: JudgedClaim) -> Evidence:
    """By task of the item, how FINN's formulas fit a design of 8 bits throughout with the task's inputs and outputs."""
    eight = ARCHITECTURES["eightbit"]
    ends = {case.environment: ARCHITECTURES[name_design(case.environment)].widths for case in item.cases}
    fits = {
        task: fit_finn(replace(eight, widths=(widths[0], *eight.widths[1:-1], widths[-1])), PART)
        for task, widths in ends.items()
    }
    return Evidence(own=fits, source=Source.ESTIMATED)


def name_design(environment: str) -> str:
    """`hopperv4` -> hopper, the name of its architecture."""
    return environment.removesuffix(VERSION)


def judge_latency(cycles: Mapping[str, int], printed: Mapping[str, int], threshold: float) -> Verdict:
    """Judge "each task's cycles are at most `threshold` of those that its printed latency takes at 100 MHz".

    Estimate and interval are the largest and the whole range of those ratios; tasks without cycles are missing.
    """
    ratios = {task: cycles[task] / count for task, count in printed.items() if task in cycles}
    caveats = tuple(f"{task}: {cycles[task]:,} cycles, {ratio:.3g} of the printed" for task, ratio in ratios.items())
    return _conclude(ratios, tuple(task for task in printed if task not in cycles), threshold, caveats)


def judge_model(
    counts: Mapping[str, int], printed: Mapping[str, float], threshold: float, what: str = "cycles"
) -> Verdict:
    """Judge "the model's cycles, or `what`, differ from each task's printed ones by at most `threshold` of them"."""
    errors = {task: counts[task] / count - 1 for task, count in printed.items()}
    caveats = tuple(f"{task}: {counts[task]:,} {what}, {error:+.1%} of the printed" for task, error in errors.items())
    return _conclude({task: abs(error) for task, error in errors.items()}, (), threshold, caveats)


def judge_blocks(counts: Mapping[str, float], printed: Mapping[str, float], threshold: float) -> Verdict:
    """Judge "the model's block RAMs differ from each task's printed ones by at most `threshold` blocks".

    Blocks, not shares: a design may take none.
    """
    errors = {task: counts[task] - count for task, count in printed.items()}
    caveats = tuple(f"{task}: {counts[task]:g} block RAMs, printed {count:g}" for task, count in printed.items())
    return _conclude({task: abs(error) for task, error in errors.items()}, (), threshold, caveats)


def judge_speedup(
    cycles: Mapping[str, int], reference: int | None, times: Mapping[str, float], threshold: float
) -> Verdict:
    """Judge "the reference takes `threshold` of the cycles that each task's `times` its own are, or more".

    Estimate and interval are the smallest and the whole range of reference / (cycles * times); without the reference
    all tasks are missing.
    """
    known = {} if reference is None else {task: cycles[task] for task in times if task in cycles}
    factors = {task: (reference or 0) / count for task, count in known.items()}
    caveats = tuple(f"{task}: {known[task]:,} cycles, {factor:.3g} times as fast" for task, factor in factors.items())
    missing = tuple(task for task in times if task not in known)
    shares = {task: factor / times[task] for task, factor in factors.items()}
    return _conclude(shares, missing, threshold, caveats, least=True)


def judge_fit(eight: Fit, four: Fit, threshold: float) -> Verdict:
    """Judge "the 8-bit design does not fit, that with a core of 4 bits does".

    Estimate and interval are the 8-bit design's share of its scarcest resource; above `threshold` it does not fit.
    """
    outcome = Outcome.SUPPORTED if four.share <= threshold < eight.share else Outcome.REFUTED
    shares = f"8 bits take {eight.share:.0%} of the {eight.resource}"
    caveats = (f"{shares}, a core of 4 bits {four.share:.0%} of the {four.resource}",)
    return Verdict(outcome, eight.share, eight.share, eight.share, threshold, SCOPE, 2, 0, 0, caveats=caveats)


def judge_misfit(fits: Mapping[str, Fit], threshold: float) -> Verdict:
    """Judge "no task's design fits": each takes more than `threshold` of its scarcest resource.

    Estimate and interval are the smallest and the whole range of those shares.
    """
    caveats = tuple(f"{task}: 8 bits take {fit.share:.0%} of the {fit.resource}" for task, fit in fits.items())
    return _conclude({task: fit.share for task, fit in fits.items()}, (), threshold, caveats, least=True)


def _conclude(
    values: Mapping[str, float],
    missing: tuple[str, ...],
    threshold: float,
    caveats: tuple[str, ...],
    *,
    least: bool = False,
) -> Verdict:
    """All `values` have to be at most `threshold`, or at `least`; one that is not refutes, whatever is missing."""
    low, high = min(values.values(), default=None), max(values.values(), default=None)
    worst = low if least else high
    outcome = Outcome.PARTIAL if missing else Outcome.SUPPORTED
    if worst is not None and (worst < threshold if least else worst > threshold):
        outcome = Outcome.REFUTED
    return Verdict(outcome, worst, low, high, threshold, SCOPE, len(values), 0, 0, caveats=caveats, missing=missing)
