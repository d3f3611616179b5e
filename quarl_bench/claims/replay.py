"""LQCC's sentences about bits (section 3.1) and its Table 1, held against the returns of published or of own runs.

Each verdict comes with the paper's rule (a mean inside the fp32 band) and with an interval, because the two disagree:
the rule asks whether a mean lies less than one SD of a policy below fp32, an interval whether it lies below at all.
With configurations missing a verdict is partial and lists them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from quarl_bench import stats
from quarl_bench.claims.catalog import Claim
from quarl_bench.claims.census import SHARE, count_certain
from quarl_bench.claims.parity import VARIANTS, Parity, Returns, average_differences, compare, leave_open, settle, weigh
from quarl_bench.claims.selection import BITS, Configuration, Finder, select, vary_rule
from quarl_bench.claims.verdict import conclude
from quarl_bench.spec import Outcome, Verdict

Tasks = Mapping[str, tuple[Returns, Finder]]  # by task: fp32 returns, none if not run; and those of a configuration
FEW = range(2, 5)  # bits at which section 3.1 sees differences
FLAT = range(3, 8)  # output bits that do not matter


def judge_parity(tasks: Tasks, scope: str, bits: Sequence[int]) -> Verdict:
    """Judge "quantized policies match fp32 in most cells" over all tasks and `bits` of a scope."""
    missing = _list_missing(tasks, (scope,), bits)
    if missing:
        return leave_open(SHARE, missing)
    return _judge_cells(
        {
            f"{task} at {width}": (reference, returns)
            for task, (reference, find) in tasks.items()
            for width, returns in zip(bits, _gather(find, scope, bits), strict=True)
        }
    )


def judge_selected(tasks: Tasks, chosen: Mapping[str, Configuration]) -> Verdict:
    """Judge "the selected configurations match fp32" on those tasks that were run; partial without the others."""
    found = {task: (tasks[task][0], tasks[task][1](configuration)) for task, configuration in chosen.items()}
    cells = {
        task: (base, other)
        for task, (base, other) in found.items()
        if other is not None and min(base.size, other.size) > 1
    }
    missing = tuple(f"{task}: fp32 and {chosen[task].scheme}" for task in found.keys() - cells.keys())
    if not cells:
        return leave_open(SHARE, sorted(missing))
    verdict = _judge_cells(cells)
    return replace(verdict, outcome=Outcome.PARTIAL, missing=tuple(sorted(missing))) if missing else verdict


def _judge_cells(cells: Mapping[str, tuple[Returns, Returns]]) -> Verdict:
    """Of (fp32, quantized) returns: whether the true mean lies above the floor of the true fp32 band.

    Partial conjunction by Simes, as everywhere: estimate and interval are shares of cells, threshold 80%.
    """
    rule = Parity()
    weights = [weigh(*pair) for pair in cells.values()]
    matched = sum(rule.matches(*pair) for pair in cells.values())
    differences = {name: compare(*pair) for name, pair in cells.items()}
    below = [f"{name} ({found.estimate:+.0%})" for name, found in differences.items() if found.below]
    n = len(cells)
    holds, fails = (count_certain([pair[side] for pair in weights]) for side in (0, 1))
    outcome = Outcome.INCONCLUSIVE
    if holds / n >= SHARE:
        outcome = Outcome.SUPPORTED
    elif 1 - fails / n < SHARE:
        outcome = Outcome.REFUTED
    caveats = [f"the paper's rule matches {matched} of {n} cells"]
    if below:
        caveats.append(f"an interval says below fp32 in {len(below)}: {', '.join(below)}")
    lower = sum(found.estimate < 0 for found in differences.values())
    caveats.append(f"{lower} of {n} average below fp32")
    policies = min(returns.size for pair in cells.values() for returns in pair)
    return settle(outcome, (matched / n, holds / n, 1 - fails / n), SHARE, policies, caveats)


def judge_bottleneck(tasks: Tasks, other: str, bits: Sequence[int] = FEW) -> Verdict:
    """Judge "at equal bits the scope `other` keeps more of fp32's return than the input's does".

    Estimate and interval are the mean over tasks and bits of that advantage, as a share of the fp32 return.
    """
    missing = _list_missing(tasks, (other, "input"), bits)
    if missing:
        return leave_open(0.0, missing)
    groups = {
        task: (reference, _gather(find, other, bits), _gather(find, "input", bits))
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
    return settle(conclude(found[1:], 0.0, math.inf), found, 0.0, _fewest(tasks), caveats)


def judge_output(tasks: Tasks, margin: float = 0.05) -> Verdict:
    """Judge "from 3 bits on, output bits do not matter": 3 to 7 against 8, on average within +-`margin` of fp32."""
    missing = _list_missing(tasks, ("output",), (*FLAT, 8))
    if missing:
        return leave_open(margin, missing)
    groups = _contrast_outputs(tasks, FLAT)
    found, rule = average_differences(groups), Parity()
    outside = [
        f"{task} at {width}"
        for task, (reference, first, _) in groups.items()
        for width, returns in zip(FLAT, first, strict=True)
        if not rule.matches(reference, returns)
    ]
    caveats = [f"the paper's rule does not match {', '.join(outside)}"] if outside else []
    return settle(conclude(found[1:], -margin, margin), found, margin, _fewest(tasks), caveats)


def judge_two_bit_output(tasks: Tasks) -> Verdict:
    """Judge "two output bits do matter": on average they lose against 8. Estimate and interval are that difference."""
    missing = _list_missing(tasks, ("output",), (2, 8))
    if missing:
        return leave_open(0.0, missing)
    found = average_differences(_contrast_outputs(tasks, (2,)))
    return settle(conclude((-found.high, -found.low), 0.0, math.inf), found, 0.0, _fewest(tasks), [])


def _contrast_outputs(tasks: Tasks, bits: Sequence[int]) -> dict[str, tuple[Returns, list[Returns], list[Returns]]]:
    return {
        task: (reference, _gather(find, "output", bits), _gather(find, "output", (8,)))
        for task, (reference, find) in tasks.items()
    }


def judge_table(tasks: Tasks, printed: Mapping[str, Configuration]) -> Verdict:
    """Judge "the rule selects what Table 1 prints" by replaying it: exact, without an interval.

    Estimate is the share of tasks. Caveats say what the interval says about each selected configuration.
    """
    missing = _list_missing({task: tasks[task] for task in printed}, ("core",), BITS)
    selections = {} if missing else {task: select(*tasks[task]) for task in printed}
    missing += [f"{task}: {gap.scheme}" for task, found in selections.items() for gap in found.absent]
    if missing:
        return leave_open(1.0, missing)
    equal = [selections[task].is_printed(configuration) for task, configuration in printed.items()]
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
    return settle(outcome, (share, share, share), 1.0, policies, lines)


def judge_sensitivity(tasks: Tasks, printed: Mapping[str, Configuration]) -> Verdict:
    """Judge "of all variants of the rule only the one-sided one with the sample SD selects what Table 1 prints".

    Exact; estimate is the share of variants that do. Caveats say which variant changes which task.
    """
    missing = _list_missing({task: tasks[task] for task in printed}, ("core",), BITS)
    if missing:
        return leave_open(1 / len(VARIANTS), missing)
    changes = vary_rule({task: tasks[task] for task in printed}, printed)
    share = sum(not others for others in changes.values()) / len(changes)
    caveats = [
        f"{rule.name}: selects otherwise for "
        + (", ".join(f"{task} ({other.configuration.scheme})" for task, other in others.items()) or "no task")
        for rule, others in changes.items()
    ]
    alone = [rule for rule, others in changes.items() if not others] == [Parity()]
    interval, outcome = (share, share, share), Outcome.SUPPORTED if alone else Outcome.REFUTED
    return settle(outcome, interval, 1 / len(changes), _fewest(tasks), caveats)


def read_printed(claim: Claim) -> dict[str, Configuration]:
    """The configurations of the claims file's table."""
    return {task: Configuration(**{k: int(v) for k, v in row.items()}) for (_, task), row in claim.values.items()}


def _gather(find: Finder, scope: str, bits: Sequence[int]) -> list[Returns]:
    found = (find(Configuration.of_scope(scope, width)) for width in bits)
    return [returns for returns in found if returns is not None]


def _list_missing(tasks: Tasks, scopes: Sequence[str], bits: Sequence[int]) -> list[str]:
    """What a sentence needs and has no two policies: fp32, and every one of `bits` in the scopes."""
    wanted = [Configuration.of_scope(scope, width) for scope in scopes for width in bits]
    return [
        f"{task}: {name}"
        for task, (reference, find) in tasks.items()
        for name, returns in (("fp32", reference), *((wish.scheme, find(wish)) for wish in dict.fromkeys(wanted)))
        if returns is None or returns.size < 2
    ]


def _fewest(tasks: Tasks) -> int:
    return min(reference.size for reference, _ in tasks.values())
