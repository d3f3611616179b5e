"""A policy that plain int8 breaks and a rewrite repairs, attempts with chosen numbers, and a short search."""

import numpy as np
import pytest

from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import find_environment
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.policies.storage.fp32 import StoredPolicy, hash_policy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import candidate, distillation, rounding, search
from quarl_bench.repairing.candidate import Candidate
from quarl_bench.repairing.workbench import Attempt

INT8 = Scheme.parse("int8")


def make_fragile() -> PolicyNet:
    """A balancer of CartPole whose neurons are unlike: one is a thousand times as large as the other."""
    gains = np.array([0.02, 0.2, 1.0, 0.6], np.float32)
    first = Linear(np.stack([gains, -gains]) * np.float32([[1000.0], [1.0]]), np.zeros(2, np.float32), Activation.RELU)
    second = Linear(np.array([[-0.001, 1.0], [0.001, -1.0]], np.float32), np.zeros(2, np.float32))
    return PolicyNet(ObservationTransform((4,)), Net((4,), (first, second)), ActionHead(HeadKind.ARGMAX))


def make_subject(policy: PolicyNet | None = None) -> Subject:
    """It on CartPole, without a store."""
    policy = make_fragile() if policy is None else policy
    return Subject(StoredPolicy(policy, hash_policy(policy), {"algo": "dqn"}), find_environment("cartpole"))


def shorten_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few states, few episodes, few steps."""
    monkeypatch.setattr(candidate, "STATES", 200)
    monkeypatch.setattr(rounding, "NUMBERS", rounding.Size(20, 32))
    monkeypatch.setattr(search, "RANGED", 2)
    for module in (search, distillation):
        monkeypatch.setattr(module, "list_rounds", lambda _: (search.Round(4, 5), search.Round(2, 6)))
    for name, value in {"STATES": 200, "VISITED": 200, "STEPS": 20, "LONGEST": 2}.items():
        monkeypatch.setattr(distillation, name, value)


def make_attempt(name: str, agreement: float, regret: float, returns: object = ()) -> Attempt:
    """An attempt of a scheme, with numbers as a test wants them."""
    scheme = Scheme.parse(name)
    states = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    candidate = Candidate(scheme, require_integer(make_fragile().quantize(scheme, states)))
    return Attempt(candidate, "rewrites", agreement, regret, 0.0, tuple(float(value) for value in returns))
