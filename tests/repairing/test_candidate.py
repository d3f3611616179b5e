"""Decisions against fp32's, and the names of candidates."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.masks import add_masks
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.quantization.equalization import scale_inputs
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.candidate import Candidate, compare_decisions, visit
from tests.support.strategies import make_policy


def test_a_policy_regrets_nothing_of_its_own():
    policy, states = make_policy(), np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    assert compare_decisions(policy, policy, states) == (1.0, 0.0)
    first, last = policy.net.layers
    contrary = replace(policy, net=Net((4,), (first, replace(last, weight=-last.weight, bias=-last.bias))))
    agreement, regret = compare_decisions(policy, contrary, states)
    outputs = policy.outputs(states)
    assert agreement == 0
    assert regret == pytest.approx(np.abs(outputs[:, 0] - outputs[:, 1]).mean(), rel=1e-5)


@pytest.mark.parametrize("kind", [HeadKind.PARTS, HeadKind.BITS])
def test_regret_of_parts_is_added_within_masks(kind):
    policy, states = make_policy(kind), np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    first, last = policy.net.layers
    contrary = replace(policy, net=Net((4,), (first, replace(last, weight=-last.weight, bias=-last.bias))))
    outputs, head = policy.outputs(states), policy.head
    agreement, regret = compare_decisions(policy, contrary, states)
    assert agreement < 0.05
    logits = head.split(head.weigh(outputs))
    assert regret == pytest.approx(sum((part.max(axis=1) - part.min(axis=1)).mean() for part in logits), rel=1e-5)
    one = np.zeros((100, sum(head.list_choices(policy.net.outputs))), np.bool_)
    one[:, [0, 2]] = True  # a single action is left: nothing can be regretted
    assert compare_decisions(policy, contrary, add_masks(states, one)) == (1.0, 0.0)


def test_numbers_are_compared_over_their_range():
    head = ActionHead(HeadKind.CLIP, np.array([-2.0], np.float32), np.array([2.0], np.float32))
    net = Net((1,), (Linear(np.ones((1, 1), np.float32), np.zeros(1, np.float32)),))
    policy, states = PolicyNet(ObservationTransform((1,)), net, head), np.array([[0.0], [1.0]], np.float32)
    half = replace(policy, net=scale_inputs(net, np.array([0.5])))
    agreement, regret = compare_decisions(policy, half, states)
    assert agreement == 0.5
    assert regret == pytest.approx((0.5 / 4) ** 2 / 2)


def test_a_name_says_the_scheme_and_the_steps():
    states = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    policy = require_integer(make_policy().quantize(Scheme.parse("int8acc"), states))
    assert Candidate(Scheme.parse("int8acc"), policy).name == "int8acc"
    assert Candidate(Scheme.parse("int8acc"), policy, ("bias",)).name == "int8acc+bias"


def test_states_are_spread_over_episodes():
    policy, environment = make_policy(), find_environment("cartpole")
    states = visit(policy, environment, 50, 20_000)
    assert states.shape == (50, 4)
    assert (np.abs(np.diff(states, axis=0)).max(axis=1) > 0).all()
