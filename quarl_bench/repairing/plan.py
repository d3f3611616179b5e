"""A repair from its beginning to its one test: rewrites, corrected biases, and distillation where these do not do."""

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from quarl_bench.checking.answer import SchemeResult
from quarl_bench.checking.random_play import find_doubt
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.evaluation.protocol import TEST_SEEDS, VALIDATION_SEEDS, list_validation_seeds
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.judging.retention import check_limits, judge_retention
from quarl_bench.policies.masks import drop_masks
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.bits import check_spare, lower_bits
from quarl_bench.repairing.candidate import Candidate
from quarl_bench.repairing.distillation import SHORTEST, distill_best
from quarl_bench.repairing.journal import open_journal
from quarl_bench.repairing.ladder import ANY, Remedy, list_forms, list_remedies
from quarl_bench.repairing.search import FIRST, FP32, IMAGE_ROUNDS, Found, round_best, search
from quarl_bench.repairing.text import describe_answer, describe_repair, print_repair
from quarl_bench.repairing.workbench import Attempt, Tell, Workbench
from quarl_bench.spec import Measurement
from quarl_bench.system.counts import check_episodes
from quarl_bench.system.machine import describe_run

BUDGET = 600.0  # seconds
LONGEST_TEST = 1_000  # episodes
TESTS = range(1, (VALIDATION_SEEDS - TEST_SEEDS) // LONGEST_TEST + 1)


@dataclass(frozen=True)
class Plan:
    """What a repair is asked for. `floor` is a return that counts as nothing; `seconds` bound the whole."""

    scheme: Scheme
    margin: float = MARGIN
    floor: float | None = None
    episodes: int = EPISODES  # of the one test
    test: int = 1  # which test of this policy it is: each has environment seeds of its own
    target: str = ANY
    seconds: float = BUDGET
    seed: int = 0  # of the order of states in training
    fewest_bytes: bool = False  # whether layers that do with fewer bits get them


@dataclass(frozen=True, eq=False)
class Repair:
    """What was tried, and the one test: the plain scheme and the chosen one on the same fresh episodes.

    Attributes:
        environment: Where it was tried.
        remedies: Changes of the scheme, in words, with the reason where one has no use for this policy.
        found: Every form that was tried (`found.attempts`), and why others have no form (`found.unfit`).
        notes: Why some remedies were not tried.
        plain: The test of the scheme as it was asked for.
        test: The test of the chosen form.
        chosen: The chosen form: `chosen.candidate` has its name and its integers (`policy`).
    """

    environment: str
    remedies: tuple[Remedy, ...]
    found: Found
    notes: tuple[str, ...]
    plain: SchemeResult
    test: SchemeResult
    chosen: Attempt
    number: int = 1  # of the test
    seconds: float = 0.0  # that all of it took

    @property
    def changed(self) -> bool:
        """Whether another form than the plain one was chosen."""
        return self.chosen.candidate.name != self.plain.scheme.name

    def as_dict(self) -> dict[str, Any]:
        """All of it in JSON types."""
        return describe_repair(self)

    def as_record(self) -> dict[str, Any]:
        """The question and the answer in JSON types, without the attempts: what the repaired policy's manifest says."""
        return describe_answer(self) | describe_run(self.seconds)

    def __str__(self) -> str:
        return print_repair(self)


def check_subject(subject: Subject, plan: Plan) -> None:
    """Refuse, in one line, what no repair can help, before anything is searched.

    SpecError for a scheme or a margin out of range, PolicyError for integers, for one that does not beat random play,
    and for observations that are not finite.
    """
    if not isinstance(subject.stored.policy, PolicyNet):
        raise SpecError("the policy holds integers already; repair the fp32 policy that they came from")
    list_forms(plan.scheme, subject.stored.policy)
    if plan.fewest_bytes:
        check_spare(plan.scheme)
    list_fresh_seeds(plan)
    check_limits(plan.margin, plan.floor)
    if not np.isfinite(drop_masks(subject.observations)).all():
        raise PolicyError("observations hold NaN or infinity, which have no range; clip them in the environment")
    first = IMAGE_ROUNDS[0].episodes if subject.stored.policy.transform.image else FIRST
    seeds = list_validation_seeds(first)
    random = subject.play_randomly(seeds)
    if doubt := find_doubt(subject.play(FP32, seeds), random):
        raise PolicyError(f"nothing to repair: {doubt}")


def repair_policy(
    subject: Subject, plan: Plan, tell: Tell = lambda _: None, cache: Path | None = None, *, resume: bool = False
) -> Repair:
    """Climb the ladder as far as needed, choose on validation seeds, test once; `tell` hears of every attempt.

    What takes long is kept in `cache` until the repair has ended; with `resume` an interrupted one goes on behind it.
    Errors as `check_subject` and `search`, and StoreError where another process repairs the same.
    """
    begin = time.monotonic()
    deadline = begin + plan.seconds
    check_subject(subject, plan)
    what = {
        "policy": subject.stored.sha256,
        "environment": subject.environment.id,
        "scheme": plan.scheme.name,
        "target": plan.target,
        "seed": plan.seed,
    }
    with open_journal(None if subject.environment.custom else cache, what, resume=resume) as journal:
        bench = Workbench(subject, plan.target, plan.seed, tell, journal)
        found, notes = climb(bench, plan, deadline)
        chosen = found.chosen
        if plan.fewest_bytes:
            lowered, chosen, note = shrink(bench, plan, chosen, deadline)
            found, notes = replace(found, attempts=(*lowered, *found.attempts)), (*notes, note)
        lines = confirm(subject, plan, chosen.candidate)
        journal.remove()
    return Repair(
        subject.environment.id,
        list_remedies(subject.stored.policy),
        found,
        notes,
        *lines,
        chosen,
        plan.test,
        time.monotonic() - begin,
    )


def climb(bench: Workbench, plan: Plan, deadline: float) -> tuple[Found, tuple[str, ...]]:
    """The rungs from the cheapest on, until one keeps enough on validation seeds; and notes on what was not climbed."""
    found = search(bench, plan.scheme)
    if keeps_enough(bench.subject, plan, found.chosen):
        return found, ("learned rounding and distillation were not needed",)
    rounded = round_best(bench, found.attempts, deadline)
    found = replace(found, attempts=(*rounded, *found.attempts))
    if keeps_enough(bench.subject, plan, found.chosen):
        return found, ("distillation was not needed",)
    left = deadline - time.monotonic()
    if left < SHORTEST:
        return found, (f"the budget leaves {max(left, 0):.0f} s, too few for distillation; give more by --budget",)
    distilled = distill_best(bench, found.attempts, left)
    return replace(found, attempts=(*distilled, *found.attempts)), ()


def shrink(bench: Workbench, plan: Plan, chosen: Attempt, deadline: float) -> tuple[tuple[Attempt, ...], Attempt, str]:
    """The chosen form with fewer bits in some layers: what was tried, what is chosen now, and a note on why."""
    keeps = partial(keeps_enough, bench.subject, plan)
    if not keeps(chosen):
        return (), chosen, "no bits were taken away: the form keeps too little as it is"
    lowered = lower_bits(bench, chosen.candidate.scheme, keeps, deadline)
    smallest = next(filter(keeps, reversed(lowered)), None)
    if smallest is None:
        return lowered, chosen, "no layer does with fewer bits"
    return lowered, smallest, "of the forms with fewer bits, the one of fewest bytes that keeps enough was chosen"


def keeps_enough(subject: Subject, plan: Plan, attempt: Attempt) -> bool:
    """Whether on validation seeds it loses less than half the margin: then dearer remedies are not tried."""
    seeds = list_validation_seeds(len(attempt.returns))
    reference, measured = subject.play(FP32, seeds), attempt.candidate.play(subject, seeds)
    verdict = _judge(subject, plan, reference, measured)
    return verdict.estimate is not None and verdict.estimate >= 1 - plan.margin / 2


def confirm(subject: Subject, plan: Plan, candidate: Candidate) -> tuple[SchemeResult, SchemeResult]:
    """The plain scheme and the chosen candidate, each against fp32, on test seeds that chose nothing."""
    seeds = list_fresh_seeds(plan)
    reference = subject.play(FP32, seeds)
    lines = []
    for scheme, measured in (
        (plan.scheme, subject.play(plan.scheme, seeds)),
        (candidate.scheme, candidate.play(subject, seeds)),
    ):
        verdict = _judge(subject, plan, reference, measured)
        lines.append(SchemeResult(scheme, reference, measured, verdict, plan.floor))
    return lines[0], lines[1]


def list_fresh_seeds(plan: Plan) -> range:
    """The environment seeds of this test: none is of another test, none calibrates, chooses or trains.

    SpecError where there are no such tests, or not for so many episodes.
    """
    if plan.test not in TESTS:
        raise SpecError(f"test {plan.test}: there are seeds for {len(TESTS)} tests, 1 to {TESTS[-1]}")
    check_episodes(plan.episodes)
    if plan.episodes > LONGEST_TEST:
        raise SpecError(f"{plan.episodes} episodes: a test of a repair has at most {LONGEST_TEST:,}")
    first = TEST_SEEDS + (plan.test - 1) * LONGEST_TEST
    return range(first, first + plan.episodes)


def _judge(subject: Subject, plan: Plan, reference: Measurement, measured: Measurement) -> Any:
    return judge_retention(reference, measured, margin=plan.margin, cap=subject.environment.cap, floor=plan.floor)
