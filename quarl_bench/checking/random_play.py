"""Whether a policy does better than random actions: where it does not, what a scheme keeps of it proves nothing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from quarl_bench.environments.registry import Environment
from quarl_bench.evaluation.measurement_key import build_key
from quarl_bench.evaluation.rollouts import measure
from quarl_bench.experiments.member import FP32
from quarl_bench.judging.outcomes import PROVES_NOTHING
from quarl_bench.judging.statistics import find_t_quantile
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.policy import Actions, Policy, States
from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.quantization.net import Floats
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Measurement, Outcome, Verdict
from quarl_bench.system.code_epoch import hash_code

EPISODES = 10  # enough to tell a trained policy from none
SEED = 17


@dataclass(frozen=True, eq=False)
class RandomPolicy(Policy):
    """Uniform actions in the place of a policy's own; discrete ones are drawn where it is played `sampled`."""

    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    @property
    def recurrent(self) -> bool:
        """Of no use to it: chance remembers nothing."""
        return False

    def outputs(self, observations: States) -> Floats:
        """Equal logits (n, outputs): a draw from their softmax is uniform."""
        return np.zeros((len(observations), self.net.outputs), dtype=np.float32)

    def act(self, observations: States) -> Actions:  # type: ignore[override]
        """Uniform values (n, actions) within the bounds, or uniform indices."""
        low, high = self.head.low, self.head.high
        if low is None or high is None:
            shape = len(observations), sum(self.head.list_choices(self.net.outputs))
            logits = self.head.weigh(self.outputs(observations), read_masks(observations))
            return self.head.pick(logits + self.draws.gumbel(size=shape))
        return self.draws.uniform(low, high, size=(len(observations), len(low))).astype(np.float32)


def play_randomly(policy: Policy, environment: Environment, seeds: Sequence[int]) -> Measurement:
    """Returns of random actions on the first environment seeds, `EPISODES` of them at most."""
    random: Any = RandomPolicy(policy.transform, policy.net, policy.head)
    return measure([("random", random)], environment, seeds[:EPISODES], sampled=policy.head.discrete)


def build_random_key(stored: StoredPolicy, environment: Environment, seeds: Sequence[int]) -> dict[str, Any]:
    """All that decides what random actions return in the place of a policy, as the store keeps it."""
    played, scheme = seeds[:EPISODES], Scheme.parse(FP32)
    key = build_key(stored.sha256, environment, played, scheme=scheme, sampled=stored.policy.head.discrete)
    return key | {"random": hash_code("checking/random_play.py")}


def find_doubt(reference: Measurement, random: Measurement) -> str:
    """Why a verdict on `reference` proves nothing; empty where it beats `random` play of the same seeds.

    It does where the lower limit of the paired difference lies above 0, which is wrong in 5% of cases.
    """
    played = len(random.returns[0])
    ours, others = np.array(reference.returns[0][:played]), np.array(random.returns[0])
    gained = ours - others
    spread = float(gained.std(ddof=1)) / math.sqrt(played) if played > 1 else 0.0
    if gained.mean() > find_t_quantile(max(played - 1, 1)) * spread:
        return ""
    return (
        f"fp32 does not beat random play (mean return {ours.mean():.4g} against {others.mean():.4g} on the same "
        f"{played} environment seeds), so a verdict on it {PROVES_NOTHING}; train it first"
    )


def weigh_doubt(verdict: Verdict, doubt: str) -> Verdict:
    """The verdict, with a doubt among its caveats: undecidable where it was supported."""
    if not doubt:
        return verdict
    found = replace(verdict, caveats=(*verdict.caveats, doubt))
    if verdict.outcome is not Outcome.SUPPORTED:
        return found
    return replace(found, outcome=Outcome.UNDECIDABLE, needed="a policy that beats random play")
