"""One form of a policy that a repair tries, and how close its decisions are to fp32's."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import Environment
from quarl_bench.evaluation.agreement import count_agreement
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.protocol import VALIDATION_SEEDS
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.policy import IntegerPolicy, Observations, Policy, PolicyNet, require_integer
from quarl_bench.policies.storage.integers import StoredIntegers, hash_integers
from quarl_bench.quantization.net import Outputs
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement

STATES, IMAGES = 2_000, 500  # in which decisions are compared
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
        """Its returns, one episode per environment seed; they are kept in the subject's store."""
        if not self.steps:
            return subject.play(self.scheme, seeds)
        return subject.play_integers(StoredIntegers(self.policy, hash_integers(self.policy)), seeds, self.name)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """States that calibrate nothing and train nothing, on validation seeds, and fp32's outputs in them."""

    policy: PolicyNet
    states: Observations
    outputs: Outputs

    @classmethod
    def visit(cls, subject: Subject) -> "HeldOut":
        """Those that the subject's fp32 policy visits."""
        policy: PolicyNet = subject.stored.policy
        states = visit(policy, subject.environment, IMAGES if policy.transform.image else STATES, VALIDATION_SEEDS)
        return cls(policy, states, policy.outputs(states))

    def compare(self, candidate: Policy) -> tuple[float, float]:
        """Agreement and regret of `candidate` in these states."""
        return compare_decisions(self.policy, candidate, self.states, self.outputs)


def make_candidate(subject: Subject, scheme: Scheme) -> Candidate:
    """The subject's policy under `scheme`."""
    return Candidate(scheme, require_integer(subject.quantize(scheme)))


def visit(policy: Policy, environment: Environment, count: int, first_seed: int) -> Observations:
    """At most `count` states that `policy` visits, spread over whole episodes; of images, which are dear, the first."""
    every = 1 if policy.transform.image else SPREAD
    return collect_observations(policy, environment, every * count, first_seed)[::every]


def spread(states: Observations, count: int) -> Observations:
    """At most `count` of `states` (n, ...), at equal distances."""
    return states[:: -(-len(states) // count)]


def compare_decisions(
    policy: PolicyNet, candidate: Policy, states: Observations, outputs: Outputs | None = None
) -> tuple[float, float]:
    """Agreement and regret of `candidate` in `states` (n, ...); `outputs` are `policy`'s there, where they are known.

    Regret is how much worse its actions are by fp32's own outputs, on average: values or logits for indices, the sum
    over the parts of an action, and squared distance as a share of the action's range for numbers.
    """
    outputs, actions = policy.outputs(states) if outputs is None else outputs, candidate.act(states)
    head, masks = policy.head, read_masks(states)
    expected = head.act(outputs, masks)
    agreement = count_agreement(actions, expected, head) / len(states)
    if head.discrete:
        values = head.weigh(outputs.astype(np.float64), masks)
        best, chosen = (head.read_chosen(values, np.asarray(each, dtype=np.int64)) for each in (expected, actions))
        return agreement, float((best - chosen).sum(axis=1).mean())
    span = 1.0 if policy.head.low is None or policy.head.high is None else policy.head.high - policy.head.low
    return agreement, float((((actions - expected) / np.where(span > 0, span, 1.0)) ** 2).mean())
