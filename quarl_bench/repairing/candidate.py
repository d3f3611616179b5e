"""One form of a policy that a repair tries, and how close its decisions are to fp32's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import Environment
from quarl_bench.evaluation.agreement import count_agreement
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.rollouts import measure
from quarl_bench.policies.policy import IntegerPolicy, Observations, Policy, PolicyNet, require_integer
from quarl_bench.policies.storage.integers import hash_integers
from quarl_bench.quantization.net import Outputs
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement

SPREAD = 8  # of so many visited states one is kept: neighbours are alike


@dataclass(frozen=True, eq=False)
class Candidate:
    """A policy in integers: the scheme that rounded it, and the steps that changed its integers afterwards."""

    scheme: Scheme
    policy: IntegerPolicy
    steps: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The scheme's name, and the steps behind it."""
        return "+".join((self.scheme.name, *self.steps))

    def play(self, subject: Subject, seeds: Sequence[int]) -> Measurement:
        """Its returns, one episode per environment seed; of a plain scheme they are kept in the subject's store."""
        if not self.steps:
            return subject.play(self.scheme, seeds)
        named = [(hash_integers(self.policy), self.policy)]
        return measure(named, subject.environment, seeds, [subject.stored.policy])


def make_candidate(subject: Subject, scheme: Scheme) -> Candidate:
    """The subject's policy under `scheme`."""
    return Candidate(scheme, require_integer(subject.quantize(scheme)))


def visit(policy: Policy, environment: Environment, count: int, first_seed: int) -> Observations:
    """At most `count` states that `policy` visits, spread over whole episodes; of images, which are dear, the first."""
    spread = 1 if policy.transform.image else SPREAD
    return collect_observations(policy, environment, spread * count, first_seed)[::spread]


def compare_decisions(
    policy: PolicyNet, candidate: Policy, states: Observations, outputs: Outputs | None = None
) -> tuple[float, float]:
    """Agreement and regret of `candidate` in `states` (n, ...); `outputs` are `policy`'s there, where they are known.

    Regret is how much worse its actions are by fp32's own outputs, on average: values or logits for indices, squared
    distance as a share of the action's range for numbers.
    """
    outputs, actions = policy.outputs(states) if outputs is None else outputs, candidate.act(states)
    values, expected = outputs.astype(np.float64), policy.head.act(outputs)
    agreement = count_agreement(actions, expected, policy.head) / len(states)
    if policy.head.discrete:
        rows = np.arange(len(states))
        return agreement, float((values.max(axis=1) - values[rows, np.asarray(actions, dtype=np.int64)]).mean())
    span = 1.0 if policy.head.low is None or policy.head.high is None else policy.head.high - policy.head.low
    return agreement, float((((actions - expected) / np.where(span > 0, span, 1.0)) ** 2).mean())
