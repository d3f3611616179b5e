"""Which algorithms draw their actions, and from what: every reader of a registry's entry finds the same."""

import time
from typing import Any

import pytest

from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import find_environment
from quarl_bench.policies.algorithm import ALGORITHMS, is_actor_critic, is_sampled, list_contrib, list_readable
from quarl_bench.policies.storage.fp32 import StoredPolicy, hash_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import distillation
from tests.support.strategies import make_policy


def test_every_readable_algorithm_says_itself_what_its_outputs_are() -> None:
    said = {algorithm.name: algorithm.actor_critic for algorithm in list_readable()}
    assert {name for name, value in said.items() if value} == {"a2c", "ppo", "maskableppo", "recurrentppo", "trpo"}
    assert {name: is_actor_critic(name) for name in said} == said
    assert {algorithm.name for algorithm in list_contrib()} == said.keys() - set(ALGORITHMS)
    assert not any(is_actor_critic(name) for name in (None, "", "unknown", 3))
    assert is_sampled("trpo", atari=True)
    assert not is_sampled("qrdqn", atari=True)


@pytest.mark.parametrize("algo, sampled", [("trpo", True), ("maskableppo", True), ("qrdqn", False), ("dqn", False)])
def test_distillation_takes_the_loss_of_the_algorithm_s_outputs(
    algo: str, sampled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STATES", "VISITED", "STEPS"):
        monkeypatch.setattr(distillation, name, 20)
    asked: list[Any] = []
    name_outputs = distillation.name_outputs

    def record(head: Any, *, sampled: bool) -> Any:
        asked.append(sampled)
        return name_outputs(head, sampled=sampled)

    monkeypatch.setattr(distillation, "name_outputs", record)
    policy = make_policy()
    subject = Subject(StoredPolicy(policy, hash_policy(policy), {"algo": algo}), find_environment("cartpole"))
    distillation.distill(subject, Scheme.parse("int4"), 0, time.monotonic())
    assert asked == [sampled]
