"""The search for a scheme that keeps the return: by decisions first, by play on validation seeds, by one test.

Three disjoint ranges of environment seeds: states that calibrate, states and episodes that choose, and the episodes of
the one test, whose result stands whatever it says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quarl_bench.checking.answer import SchemeResult, play_schemes
from quarl_bench.checking.subject import Subject
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.protocol import VALIDATION_SEEDS
from quarl_bench.evaluation.rollouts import count_agreement
from quarl_bench.policies.policy import Observations, Policy, PolicyNet
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.ladder import Remedy, list_candidates, list_remedies
from quarl_bench.repairing.text import describe_repair, print_repair

STATES = 2_000  # in which decisions are compared
FINALISTS = 4  # that are played, beside the plain scheme
EPISODES = 30  # of each, on validation seeds


@dataclass(frozen=True)
class Attempt:
    """One candidate: how it decides in states that calibrated nothing, and what it returned on validation seeds.

    `regret` is how much worse its actions are by fp32's own outputs, on average: values or logits for indices, squared
    distance as a share of the action's range for numbers.
    """

    scheme: Scheme
    agreement: float
    regret: float
    validation: float | None = None  # mean return; None where it was not played
    episodes: int = 0  # that it was played


@dataclass(frozen=True)
class Repair:
    """What was tried, and the one test: the plain scheme and the chosen one on the same fresh episodes."""

    environment: str
    remedies: tuple[Remedy, ...]
    attempts: tuple[Attempt, ...]
    plain: SchemeResult
    chosen: SchemeResult

    @property
    def changed(self) -> bool:
        """Whether another form than the plain one was chosen."""
        return self.plain.scheme != self.chosen.scheme

    def as_dict(self) -> dict[str, Any]:
        """All of it in JSON types."""
        return describe_repair(self)

    def __str__(self) -> str:
        return print_repair(self)


def compare_decisions(policy: PolicyNet, candidate: Policy, states: Observations) -> tuple[float, float]:
    """Agreement and regret of `candidate` in `states` (n, ...)."""
    values, actions = policy.outputs(states).astype(np.float64), candidate.act(states)
    expected = policy.head.act(policy.outputs(states))
    agreement = count_agreement(actions, expected, policy.head) / len(states)
    if policy.head.discrete:
        rows = np.arange(len(states))
        return agreement, float((values.max(axis=1) - values[rows, np.asarray(actions, dtype=np.int64)]).mean())
    span = 1.0 if policy.head.low is None or policy.head.high is None else policy.head.high - policy.head.low
    return agreement, float((((actions - expected) / span) ** 2).mean())


def search(subject: Subject, scheme: Scheme, tell: Callable[[Attempt], None] = lambda _: None) -> list[Attempt]:
    """Every candidate of `scheme`, the ones with least regret played, in that order; `tell` hears of each.

    SpecError and QuantizationError as `list_candidates`.
    """
    policy = subject.stored.policy
    states = collect_observations(policy, subject.environment, STATES, VALIDATION_SEEDS)
    attempts = []
    for candidate in list_candidates(scheme, policy):
        attempts.append(Attempt(candidate, *compare_decisions(policy, subject.quantize(candidate), states)))
        tell(attempts[-1])
    ranked = sorted(attempts, key=lambda attempt: (attempt.regret, -attempt.agreement))
    finalists = {attempt.scheme.name for attempt in ranked[:FINALISTS]} | {scheme.name}
    seeds = range(VALIDATION_SEEDS, VALIDATION_SEEDS + EPISODES)
    played = []
    for attempt in ranked:
        mean = subject.play(attempt.scheme, seeds).mean if attempt.scheme.name in finalists else None
        played.append(attempt if mean is None else replace(attempt, validation=mean, episodes=EPISODES))
        if mean is not None:
            tell(played[-1])
    return played


def choose(attempts: Sequence[Attempt]) -> Scheme:
    """The candidate that returned most on validation seeds; of equal ones that of least regret."""
    played = [attempt for attempt in attempts if attempt.validation is not None]
    return max(played, key=lambda attempt: (attempt.validation or 0.0, -attempt.regret)).scheme


def confirm(
    subject: Subject, attempts: Sequence[Attempt], scheme: Scheme, episodes: int, margin: float, floor: float | None
) -> Repair:
    """The plain scheme and the chosen one, each against fp32, on test seeds that chose nothing."""
    best = choose(attempts)
    lines = {line.scheme.name: line for line in play_schemes(subject, [scheme, best], episodes, margin, floor)}
    remedies = list_remedies(subject.stored.policy)
    return Repair(subject.environment.id, remedies, tuple(attempts), lines[scheme.name], lines[best.name])
