"""LQCC's sentences on its Table 3, judged for FINN's formulas and for our own designs, each on its own.

Cycles and sizes of one design are exact numbers of a model, a simulator or an estimate, without an interval over
policies. Watts and joules need a vendor's tools and are not judged.
"""

from collections.abc import Mapping

from quarl_bench.deploy.fpga.comparison import Fit
from quarl_bench.spec import Outcome, Verdict

SCOPE = "these designs"


def judge_latency(cycles: Mapping[str, int], printed: Mapping[str, int], threshold: float) -> Verdict:
    """Judge "each task's cycles are at most `threshold` of those that its printed latency takes at 100 MHz".

    Estimate and interval are the largest and the whole range of those ratios; tasks without cycles are missing.
    """
    ratios = {task: cycles[task] / count for task, count in printed.items() if task in cycles}
    caveats = tuple(f"{task}: {cycles[task]:,} cycles, {ratio:.3g} of the printed" for task, ratio in ratios.items())
    return _settle(ratios, tuple(task for task in printed if task not in cycles), threshold, caveats)


def judge_model(cycles: Mapping[str, int], printed: Mapping[str, int], threshold: float) -> Verdict:
    """Judge "the model's cycles differ from each task's printed latency by at most `threshold` of it"."""
    errors = {task: cycles[task] / count - 1 for task, count in printed.items()}
    caveats = tuple(f"{task}: {cycles[task]:,} cycles, {error:+.1%} of the printed" for task, error in errors.items())
    return _settle({task: abs(error) for task, error in errors.items()}, (), threshold, caveats)


def judge_fit(eight: Fit, four: Fit) -> Verdict:
    """Judge "the 8-bit design does not fit, that with a core of 4 bits does".

    Estimate and interval are the 8-bit design's share of its scarcest resource; above 1 it does not fit.
    """
    outcome = Outcome.SUPPORTED if four.fits and not eight.fits else Outcome.REFUTED
    shares = f"8 bits take {eight.share:.0%} of the {eight.resource}"
    caveats = (f"{shares}, a core of 4 bits {four.share:.0%} of the {four.resource}",)
    return Verdict(outcome, eight.share, eight.share, eight.share, 1.0, SCOPE, 2, 0, 0, caveats=caveats)


def _settle(
    values: Mapping[str, float], missing: tuple[str, ...], threshold: float, caveats: tuple[str, ...]
) -> Verdict:
    """All `values` have to be at most `threshold`; one that is not refutes, whatever is missing."""
    worst = max(values.values(), default=None)
    outcome = Outcome.PARTIAL if missing else Outcome.SUPPORTED
    if worst is not None and worst > threshold:
        outcome = Outcome.REFUTED
    lowest = min(values.values(), default=None)
    return Verdict(outcome, worst, lowest, worst, threshold, SCOPE, len(values), 0, 0, caveats=caveats, missing=missing)
