"""LQCC's sentences about bits (section 3.1) and its Table 1, held against the returns of published or of own runs.

Sentences about parity are the paper's rule (a mean inside the fp32 band), with what an interval says beside it. The two
disagree: the rule asks whether a mean lies less than one SD of a policy below fp32, an interval whether it lies below.
Where a task lacks configurations, the verdict is on the others, partial, and lists what lacks.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.census import count_certain
from quarl_bench.judging.claim import Claim
from quarl_bench.judging.retention import conclude
from quarl_bench.papers.lqcc.judgements.tasks import FEW_BITS
from quarl_bench.papers.lqcc.parity import (
    Parity,
    Returns,
    average_differences,
    band_p_values,
    compare,
    from_interval,
    partial,
    replay_rule,
)
from quarl_bench.papers.lqcc.runs.tasks import (
    Tasks,
    collect_returns,
    count_fewest,
    find_gaps,
    gather_returns,
    limit_to,
    sweep_bits,
)
from quarl_bench.papers.lqcc.selection import BITS, Configuration, Selection, resample, select, vary_rule
from quarl_bench.spec import Outcome, Verdict

FLAT = range(3, 8)  # output bits that do not matter


def judge_parity(tasks: Tasks, scope: str, bits: Sequence[int], threshold: float) -> Verdict:
    """Judge "quantized policies match fp32 in a share `threshold` of the cells", over tasks and `bits` of a scope."""

    def judge(ready: Tasks) -> Verdict:
        return _judge_cells(
            {
                task: (
                    reference,
                    {
                        f"{task} at {width}": cell
                        for width, cell in zip(bits, gather_returns(find, scope, bits), strict=True)
                    },
                )
                for task, (reference, find) in ready.items()
            },
            threshold,
        )

    return _judge_ready(tasks, sweep_bits(scope, bits), threshold, judge)


def judge_selected(tasks: Tasks, chosen: Mapping[str, Configuration], threshold: float) -> Verdict:
    """Judge "the selected configurations match fp32 in a share `threshold` of the tasks"; partial without some."""
    found = {task: (tasks[task][0], tasks[task][1](configuration)) for task, configuration in chosen.items()}
    ready = {
        task: (base, {task: other})
        for task, (base, other) in found.items()
        if other is not None and min(base.size, other.size) > 1
    }
    missing = [f"{task}: {name}" for task in sorted(chosen) for name in find_gaps(*tasks[task], [chosen[task]])]
    return limit_to(_judge_cells(ready, threshold), missing) if ready else partial(threshold, missing)


def _judge_cells(tasks: Mapping[str, tuple[Returns, Mapping[str, Returns]]], threshold: float) -> Verdict:
    """Of fp32's returns and those of named cells, by task: the paper's rule, exact; supported from `threshold` of them.

    The sentences are about the means of these runs, and ten policies hardly ever decide where a true mean lies beside
    a band one SD wide. What an interval says of the difference stands in the caveats, and in how many cells it is
    certain (partial conjunction by Simes) that the true mean lies above the band's floor, or below it.
    """
    cells = {name: (base, found) for base, own in tasks.values() for name, found in own.items()}
    rule, n = Parity(), len(cells)
    outside = [name for name, pair in cells.items() if not rule.matches(*pair)]
    differences = {name: compare(*pair) for name, pair in cells.items()}
    below = [f"{name} ({found.estimate:+.0%})" for name, found in differences.items() if found.below]
    weights = [band_p_values(*pair) for pair in cells.values()]
    holds, fails = (count_certain([pair[side] for pair in weights]) for side in (0, 1))
    mean, low, high = average_differences(
        {task: (base, [*own.values()], [base]) for task, (base, own) in tasks.items()}
    )
    lower = sum(found.estimate < 0 for found in differences.values())
    caveats = [
        f"the rule matches {n - len(outside)} of {n} cells" + (f", not {', '.join(outside)}" if outside else ""),
        f"on average {mean:+.1%} [{low:+.1%}, {high:+.1%}] of fp32, below it in {lower} of {n}",
        f"certainly above the floor of fp32's band in {holds}, and below it in {fails}",
    ]
    if below:
        caveats.append(f"an interval says below fp32 in {len(below)}: {', '.join(below)}")
    share = 1 - len(outside) / n
    policies = min(returns.size for pair in cells.values() for returns in pair)
    outcome = Outcome.SUPPORTED if share >= threshold else Outcome.REFUTED
    return replay_rule(outcome, share, threshold, policies, caveats)


def judge_bottleneck(
    tasks: Tasks, other: str, worst: str = "input", bits: Sequence[int] = FEW_BITS, threshold: float = 0.0
) -> Verdict:
    """Judge "at equal bits the scope `other` keeps more than `threshold` more of fp32's return than `worst` does".

    Estimate and interval are the mean over tasks and bits of that advantage, as a share of the fp32 return.
    """

    def judge(ready: Tasks) -> Verdict:
        groups = {
            task: (reference, gather_returns(find, other, bits), gather_returns(find, worst, bits))
            for task, (reference, find) in ready.items()
        }
        found = average_differences(groups)
        against = [
            f"{task} at {width}"
            for task, (_, first, second) in groups.items()
            for width, one, two in zip(bits, first, second, strict=True)
            if one.mean() < two.mean()
        ]
        apart = {task: average_differences({task: group}) for task, group in groups.items()}
        told = (f"{task} {own.estimate:+.1%} [{own.low:+.1%}, {own.high:+.1%}]" for task, own in apart.items())
        caveats = ["these tasks only", ", ".join(told)]
        if against:
            cells = f"{len(against)} of {len(groups) * len(bits)} cells"
            caveats.append(f"the {worst} does better in {cells}: {', '.join(against)}")
        return from_interval(conclude(found[1:], threshold, math.inf), found, threshold, count_fewest(ready), caveats)

    return _judge_ready(tasks, [*sweep_bits(other, bits), *sweep_bits(worst, bits)], threshold, judge)


def judge_output(tasks: Tasks, margin: float = 0.05) -> Verdict:
    """Judge "from 3 bits on, output bits do not matter": 3 to 7 against 8, on average within +-`margin` of fp32."""

    def judge(ready: Tasks) -> Verdict:
        groups = {
            task: (reference, gather_returns(find, "output", FLAT), gather_returns(find, "output", (8,)))
            for task, (reference, find) in ready.items()
        }
        found, rule = average_differences(groups), Parity()
        outside = [
            f"{task} at {width}"
            for task, (reference, first, _) in groups.items()
            for width, returns in zip(FLAT, first, strict=True)
            if not rule.matches(reference, returns)
        ]
        caveats = [f"the paper's rule does not match {', '.join(outside)}"] if outside else []
        return from_interval(conclude(found[1:], -margin, margin), found, margin, count_fewest(ready), caveats)

    return _judge_ready(tasks, sweep_bits("output", (*FLAT, 8)), margin, judge)


def judge_cost(tasks: Tasks, few: Configuration, many: Configuration | None = None, threshold: float = 0.0) -> Verdict:
    """Judge "`few` returns less than `many`, by default 8 bits everywhere", by more than `threshold`, over tasks.

    Estimate and interval are `few` minus `many`, as a share of the fp32 return.
    """
    against = many or Configuration()

    def judge(ready: Tasks) -> Verdict:
        groups = {
            task: (reference, collect_returns(find, (few,)), collect_returns(find, (against,)))
            for task, (reference, find) in ready.items()
        }
        found = average_differences(groups)
        outcome = conclude((-found.high, -found.low), threshold, math.inf)
        return from_interval(outcome, found, -threshold or 0.0, count_fewest(ready), [])

    return _judge_ready(tasks, (few, against), -threshold or 0.0, judge)


def judge_input_bits(tasks: Tasks, chosen: Mapping[str, Configuration], threshold: float) -> Verdict:
    """Judge "with the chosen core and width fewer input bits match fp32 than with 8 bits and full width".

    By the paper's rule, exact: the estimate is the share of those tasks in which some input matches either way, and
    the sentence holds from `threshold` of them.
    """
    rule, before, after = Parity(), sweep_bits("input", BITS), {}
    for task, configuration in chosen.items():
        after[task] = [replace(configuration, input=bits) for bits in BITS]
    missing = [f"{task}: {name}" for task in chosen for name in find_gaps(*tasks[task], [*before, *after[task]])]
    fewest = {
        task: tuple(
            min((one.input for one in sweep if rule.matches(reference, np.asarray(find(one)))), default=None)
            for sweep in (before, after[task])
        )
        for task, (reference, find) in tasks.items()
        if task in chosen and not find_gaps(reference, find, [*before, *after[task]])
    }
    both = {task: (first, last) for task, (first, last) in fewest.items() if first is not None and last is not None}
    if not both:
        return partial(threshold, missing)
    share = sum(last < first for first, last in both.values()) / len(both)
    caveats = [f"{task}: {first or 'none'} to {last or 'none'} bits" for task, (first, last) in fewest.items()]
    outcome = Outcome.SUPPORTED if share >= threshold else Outcome.REFUTED
    policies = count_fewest({task: tasks[task] for task in both})
    return limit_to(replay_rule(outcome, share, threshold, policies, caveats), missing)


def judge_gain(tasks: Tasks, scope: str, bits: Sequence[int], threshold: float = 0.0) -> Verdict:
    """Judge "with these bits in this scope the return is above fp32's by more than `threshold` of it", on average."""

    def judge(ready: Tasks) -> Verdict:
        groups = {
            task: (reference, gather_returns(find, scope, bits), [reference])
            for task, (reference, find) in ready.items()
        }
        found = average_differences(groups)
        above = sum(cell.mean() > reference.mean() for reference, cells, _ in groups.values() for cell in cells)
        caveats = [f"the mean is above fp32's in {above} of {len(groups) * len(bits)} cells"]
        return from_interval(conclude(found[1:], threshold, math.inf), found, threshold, count_fewest(ready), caveats)

    return _judge_ready(tasks, sweep_bits(scope, bits), threshold, judge)


def judge_table(tasks: Tasks, printed: Mapping[str, Configuration], threshold: float) -> Verdict:
    """Judge "the rule selects what Table 1 prints in a share `threshold` of the tasks" by replaying it: exact.

    Estimate is the share of tasks. Caveats say what the interval says about each selected configuration. What the rule
    asked for has to be there, and no more: a step ends at its first match.
    """
    selections, missing = replay({task: tasks[task] for task in printed})
    if not selections:
        return partial(threshold, missing)
    equal = [found.is_printed(printed[task]) for task, found in selections.items()]
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
    again = {task: found.stability for task, found in selections.items() if found.stability is not None}
    if again:
        shares = ", ".join(f"{task} {found.describe_share()}" for task, found in again.items())

        lines.append(f"with policies drawn again from these, the same is selected: {shares}")
    policies = min(found.chosen.found.policies for found in selections.values())
    outcome = Outcome.SUPPORTED if share >= threshold else Outcome.REFUTED
    return limit_to(replay_rule(outcome, share, threshold, policies, lines), missing)


def judge_sensitivity(tasks: Tasks, printed: Mapping[str, Configuration], threshold: float) -> Verdict:
    """Judge "of all variants of the rule the one-sided one with the sample SD, and at most a share `threshold` of them,
    selects what Table 1 prints".

    Exact; estimate is the share of variants that do. Caveats say which variant changes which task.
    """
    chosen = {task: tasks[task] for task in printed}
    missing = replay(chosen)[1]
    if missing:
        return partial(threshold, missing)
    changes = vary_rule(chosen, printed)
    share = sum(not others for others in changes.values()) / len(changes)
    caveats = [
        f"{rule.name}: selects otherwise for "
        + (", ".join(f"{task} ({_tell(other)})" for task, other in others.items()) or "no task")
        for rule, others in changes.items()
    ]
    selecting = [rule for rule, others in changes.items() if not others]
    outcome = Outcome.SUPPORTED if Parity() in selecting and share <= threshold else Outcome.REFUTED
    return replay_rule(outcome, share, threshold, count_fewest(tasks), caveats)


def read_printed(claim: Claim) -> dict[str, Configuration]:
    """The configurations of Table 1, as numbers.toml has them."""
    return {task: Configuration(**{k: int(v) for k, v in row.items()}) for (_, task), row in claim.values.items()}


def replay(tasks: Tasks) -> tuple[dict[str, Selection], list[str]]:
    """By task what the rule selects; and everything it asked for without finding two policies, those tasks left out."""
    selections: dict[str, Selection] = {}
    missing: list[str] = []
    for task, (reference, find) in tasks.items():
        gaps = [] if reference.size > 1 else ["fp32"]

        def ask(configuration: Configuration) -> Returns | None:
            returns = find(configuration)  # noqa: B023 (called at once)
            if returns is not None and returns.size > 1:
                return returns
            gaps.append(configuration.scheme)  # noqa: B023
            return None

        if not gaps:
            try:
                found = select(reference, ask)
            except SpecError:  # of a step without any
                if not gaps:
                    raise
            if not gaps:
                selections[task] = resample(found, reference, find)
        missing += [f"{task}: {gap}" for gap in gaps]
    return selections, missing


def _tell(selection: Selection) -> str:
    absent = f"; {len(selection.absent)} it asks for were not run" if selection.absent else ""
    return f"{selection.configuration.scheme}{absent}"


def _judge_ready(
    tasks: Tasks, wanted: Sequence[Configuration], threshold: float, judge: Callable[[Tasks], Verdict]
) -> Verdict:
    """`judge` the tasks of which nothing is missing."""
    missing = {task: find_gaps(reference, find, wanted) for task, (reference, find) in tasks.items()}
    gaps = [f"{task}: {name}" for task, names in missing.items() for name in names]
    ready = {task: found for task, found in tasks.items() if not missing[task]}
    return limit_to(judge(ready), gaps) if ready else partial(threshold, gaps)
