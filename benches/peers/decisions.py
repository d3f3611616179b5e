"""What forms of DQN's Breakout decide in states that calibrated nothing: how often as fp32, and at what regret.

No episode is played. Forms are those of docs/repair.md; nobody else is compared. No time is taken: the same states give
the same numbers.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from turns import Script, Turns, main

from quarl_bench.judging.times.contest import Contest

POLICY = Path(__file__).parents[2] / "baselines" / "policies" / "dqn-breakout-seed0"
STATES, QUICK = 2_000, 100
FORMS = ("int8", "int8acc", "int8cleacc", "int8pct9999acc")
CORRECTED = "int8pct9999acc"  # also with corrected biases


def decide(count: int) -> dict[str, tuple[float, float]]:
    """By form, the share of `count` states in which it acts as fp32 does, and its regret."""
    from quarl_bench.checking.subject import Subject
    from quarl_bench.evaluation.protocol import VALIDATION_SEEDS
    from quarl_bench.experiments.policy_source import PolicySource, open_task
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.repairing.candidate import HeldOut, visit
    from quarl_bench.repairing.workbench import Workbench

    subject = Subject(*open_task(PolicySource(POLICY)))
    policy: Any = subject.stored.policy
    states = visit(policy, subject.environment, count, VALIDATION_SEEDS)
    bench = Workbench(subject)
    vars(bench)["held_out"] = HeldOut(policy, states, policy.outputs(states))  # more states than a search looks at
    attempts = [*bench.compare_all(map(Scheme.parse, FORMS)), bench.correct(Scheme.parse(CORRECTED))]
    return {attempt.candidate.name: (100 * attempt.agreement, attempt.regret) for attempt in attempts}


def compare(turns: Turns) -> Iterator[Contest]:
    """Decisions, then regret."""
    import torch

    torch.set_num_threads(1)
    count = QUICK if turns.options.quick else STATES
    (found,) = turns.recall(lambda: decide(count))
    for column, (name, unit) in enumerate((("acts as fp32", "% of the states"), ("regret", "Q-values, mean"))):
        rounds = {form: (numbers[column],) for form, numbers in found.items()}
        yield Contest(name, unit, rounds, rate=column == 0, note=f"{count:,} states")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 1))
