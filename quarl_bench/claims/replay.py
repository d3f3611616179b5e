"""LQCC's sentences about bits (section 3.1) and its Table 1, held against the returns of published or of own runs.

Each verdict comes with the paper's rule (a mean inside the fp32 band) and with an interval, because the two disagree:
the rule asks whether a mean lies less than one SD of a policy below fp32, an interval whether it lies below at all.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from quarl_bench import stats
from quarl_bench.claims.catalog import Claim
from quarl_bench.claims.census import SHARE, count_certain
from quarl_bench.claims.parity import Parity, Returns, average_differences, compare, weigh
from quarl_bench.claims.selection import Configuration, Finder, Selection
from quarl_bench.claims.verdict import bar_collapses, conclude, name_scope
from quarl_bench.errors import SpecError
from quarl_bench.spec import Outcome, Verdict

Tasks = Mapping[str, tuple[Returns, Finder]]  # by task: fp32 returns, and those of a configuration
EXCEPTION = "halfcheetahv4"  # the paper's own
FEW = range(2, 5)  # bits at which section 3.1 sees differences
FLAT = range(3, 8)  # output bits that do not matter


def judge_parity(tasks: Tasks, scope: str, bits: Sequence[int]) -> Verdict:
    """Judge "quantized policies match fp32 in most cells" over all tasks and `bits` of a scope.

    A cell holds when its true mean lies above the floor of the fp32 band, which is taken as known. Partial conjunction
    by Simes, as everywhere: estimate and interval are shares of cells, threshold 80%.
    """
    rule, weights, below, matched, sizes = Parity(), [], [], [], []
    for task, (reference, find) in tasks.items():
        for width, returns in zip(bits, _gather(find, scope, bits, task), strict=True):
            weights.append(weigh(returns, rule.find_band(reference)[0]))
            matched.append(rule.matches(reference, returns))
            if compare(reference, returns).below:
                below.append(f"{task} at {width}")
            sizes.append(min(reference.size, returns.size))
    n = len(weights)
    holds, fails = (count_certain([pair[side] for pair in weights]) for side in (0, 1))
    outcome = Outcome.INCONCLUSIVE
    if holds / n >= SHARE:
        outcome = Outcome.SUPPORTED
    elif 1 - fails / n < SHARE:
        outcome = Outcome.REFUTED
    caveats = [f"the paper's rule matches {sum(matched)} of {n} cells"]
    if below:
        caveats.append(f"an interval says below fp32 in {len(below)}: {', '.join(below)}")
    return _settle(outcome, (sum(matched) / n, holds / n, 1 - fails / n), SHARE, min(sizes), caveats)


def judge_bottleneck(tasks: Tasks, other: str, bits: Sequence[int] = FEW) -> Verdict:
    """Judge "at equal bits the scope `other` keeps more of fp32's return than the input's does".

    Estimate and interval are the mean over tasks and bits of that advantage, as a share of the fp32 return.
    """
    groups = {
        task: (reference, _gather(find, other, bits, task), _gather(find, "input", bits, task))
        for task, (reference, find) in tasks.items()
    }
    found = average_differences(groups)
    worse = [
        f"{task} at {width}"
        for task, (_, first, second) in groups.items()
        for width, one, two in zip(bits, first, second, strict=True)
        if one.mean() < two.mean()
    ]
    caveats = ["these tasks only"]
    if worse:
        caveats.append(f"the input does better in {len(worse)} of {len(groups) * len(bits)} cells: {', '.join(worse)}")
    return _settle(conclude(found[1:], 0.0, math.inf), found, 0.0, _fewest(tasks), caveats)


def judge_output(tasks: Tasks, margin: float = 0.05) -> Verdict:
    """Judge "from 3 bits on, output bits do not matter": 3 to 7 against 8, on average within +-`margin` of fp32."""
    groups = _contrast_outputs(tasks, FLAT)
    found, rule = average_differences(groups), Parity()
    outside = [
        f"{task} at {width}"
        for task, (reference, first, _) in groups.items()
        for width, returns in zip(FLAT, first, strict=True)
        if not rule.matches(reference, returns)
    ]
    caveats = [f"the paper's rule does not match {', '.join(outside)}"] if outside else []
    return _settle(conclude(found[1:], -margin, margin), found, margin, _fewest(tasks), caveats)


def judge_two_bit_output(tasks: Tasks) -> Verdict:
    """Judge "two output bits do matter": on average they lose against 8. Estimate and interval are that difference."""
    found = average_differences(_contrast_outputs(tasks, (2,)))
    return _settle(conclude((-found.high, -found.low), 0.0, math.inf), found, 0.0, _fewest(tasks), [])


def _contrast_outputs(tasks: Tasks, bits: Sequence[int]) -> dict[str, tuple[Returns, list[Returns], list[Returns]]]:
    return {
        task: (reference, _gather(find, "output", bits, task), _gather(find, "output", (8,), task))
        for task, (reference, find) in tasks.items()
    }


def judge_table(selections: Mapping[str, Selection], printed: Mapping[str, Configuration]) -> Verdict:
    """Judge "the rule selects what Table 1 prints" by replaying it: exact, without an interval.

    Estimate is the share of tasks. Caveats say what the interval says about each selected configuration.
    """
    equal = [selections[task].configuration == configuration for task, configuration in printed.items()]
    share = float(np.mean(equal))
    differences = {task: found.chosen.difference for task, found in selections.items()}
    above, under = stats.flip_signs([found.estimate for found in differences.values()])
    lines = [
        f"{task}: {selections[task].configuration.scheme} {'matches' if selections[task].matched else 'does not match'}"
        f" by the rule; interval {found.estimate:+.1%} [{found.low:+.1%}, {found.high:+.1%}]"
        f"{', below fp32' if found.below else ''}"
        for task, found in differences.items()
    ]
    lower = sum(found.estimate < 0 for found in differences.values())
    lines.append(f"{lower} of {len(differences)} selected average below fp32 (sign flips p = {min(above, under):.3f})")
    policies = min(found.chosen.policies for found in selections.values())
    outcome = Outcome.SUPPORTED if all(equal) else Outcome.REFUTED
    return _settle(outcome, (share, share, share), 1.0, policies, lines)


def read_printed(claim: Claim) -> dict[str, Configuration]:
    """The configurations of the claims file's table."""
    return {task: Configuration(**{k: int(v) for k, v in row.items()}) for (_, task), row in claim.values.items()}


def _gather(find: Finder, scope: str, bits: Sequence[int], task: str) -> list[Returns]:
    """Returns of a scope at each of `bits`; SpecError for a cell that was not run."""
    cells = [(Configuration.of_scope(scope, width), find(Configuration.of_scope(scope, width))) for width in bits]
    for configuration, returns in cells:
        if returns is None:
            raise SpecError(f"{task}: {configuration.scheme} was not run; the sentence is about all of its cells")
    return [returns for _, returns in cells if returns is not None]


def _fewest(tasks: Tasks) -> int:
    return min(reference.size for reference, _ in tasks.values())


def _settle(
    outcome: Outcome, interval: Sequence[float], threshold: float, policies: int, caveats: Sequence[str]
) -> Verdict:
    """Episodes are 1: of each policy only its mean return is known."""
    estimate, low, high = interval
    return Verdict(
        outcome, estimate, low, high, threshold, name_scope(policies), policies, 1, 1,
        needed="more policies" if outcome is Outcome.INCONCLUSIVE else "",
        caveats=(*caveats, bar_collapses(policies)),
    )  # fmt: skip
