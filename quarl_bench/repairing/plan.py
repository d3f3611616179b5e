"""A repair from its beginning to its one test: rewrites, corrected biases, and distillation where these do not do."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quarl_bench.checking.answer import SchemeResult
from quarl_bench.checking.random_play import find_doubt, play_randomly
from quarl_bench.checking.subject import Subject
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.evaluation.protocol import list_test_seeds, list_validation_seeds
from quarl_bench.judging.retention import judge_retention
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.candidate import Candidate
from quarl_bench.repairing.distillation import SHORTEST, distill_best
from quarl_bench.repairing.ladder import ANY, Remedy, list_forms, list_remedies
from quarl_bench.repairing.search import FIRST, FP32, IMAGE_ROUNDS, Attempt, Found, Tell, choose, search
from quarl_bench.repairing.text import describe_repair, print_repair
from quarl_bench.spec import Measurement

BUDGET = 600.0  # seconds


@dataclass(frozen=True)
class Plan:
    """What a repair is asked for. `floor` is a return that counts as nothing; `seconds` bound the whole."""

    scheme: Scheme
    margin: float = 0.05
    floor: float | None = None
    episodes: int = 100  # of the one test
    target: str = ANY
    seconds: float = BUDGET
    seed: int = 0  # of the order of states in training


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

    @property
    def changed(self) -> bool:
        """Whether another form than the plain one was chosen."""
        return self.chosen.candidate.name != self.plain.scheme.name

    def as_dict(self) -> dict[str, Any]:
        """All of it in JSON types."""
        return describe_repair(self)

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
    if not 0 < plan.margin < 1:
        raise SpecError(f"margin {plan.margin:g}: the share of the return that may be lost lies between 0 and 1")
    if not np.isfinite(subject.observations).all():
        raise PolicyError("observations hold NaN or infinity, which have no range; clip them in the environment")
    first = IMAGE_ROUNDS[0].episodes if subject.stored.policy.transform.image else FIRST
    seeds = list_validation_seeds(first)
    random = play_randomly(subject.stored.policy, subject.environment, seeds)
    if doubt := find_doubt(subject.play(FP32, seeds), random):
        raise PolicyError(f"nothing to repair: {doubt}")


def repair_policy(subject: Subject, plan: Plan, tell: Tell = lambda _: None) -> Repair:
    """Climb the ladder as far as needed, choose on validation seeds, test once; `tell` hears of every attempt.

    Errors as `check_subject` and `search`.
    """
    begin = time.monotonic()
    check_subject(subject, plan)
    found = search(subject, plan.scheme, plan.target, tell)
    notes: tuple[str, ...] = ()
    if keeps_enough(subject, plan, found.chosen):
        notes = ("distillation was not needed",)
    else:
        left = plan.seconds - (time.monotonic() - begin)
        if left < SHORTEST:
            notes = (f"the budget leaves {max(left, 0):.0f} s, too few for distillation; give more by --budget",)
        else:
            distilled = distill_best(subject, found.attempts, plan.seed, left, tell)
            found = replace(found, attempts=(*distilled, *found.attempts))
    chosen = choose(found.attempts)
    lines = confirm(subject, plan, chosen.candidate)
    return Repair(subject.environment.id, list_remedies(subject.stored.policy), found, notes, *lines, chosen)


def keeps_enough(subject: Subject, plan: Plan, attempt: Attempt) -> bool:
    """Whether on validation seeds it loses less than half the margin: then dearer remedies are not tried."""
    seeds = list_validation_seeds(len(attempt.returns))
    reference, measured = subject.play(FP32, seeds), attempt.candidate.play(subject, seeds)
    verdict = _judge(subject, plan, reference, measured)
    return verdict.estimate is not None and verdict.estimate >= 1 - plan.margin / 2


def confirm(subject: Subject, plan: Plan, candidate: Candidate) -> tuple[SchemeResult, SchemeResult]:
    """The plain scheme and the chosen candidate, each against fp32, on test seeds that chose nothing."""
    seeds = list_test_seeds(plan.episodes)
    reference = subject.play(FP32, seeds)
    lines = []
    for scheme, measured in (
        (plan.scheme, subject.play(plan.scheme, seeds)),
        (candidate.scheme, candidate.play(subject, seeds)),
    ):
        verdict = _judge(subject, plan, reference, measured)
        lines.append(SchemeResult(scheme, reference, measured, verdict, plan.floor))
    return lines[0], lines[1]


def _judge(subject: Subject, plan: Plan, reference: Measurement, measured: Measurement) -> Any:
    return judge_retention(reference, measured, margin=plan.margin, cap=subject.environment.cap, floor=plan.floor)
