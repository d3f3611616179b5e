"""Negative controls: a quantizer that did nothing would pass every claim, so the coarse ones must hurt."""

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS, TEST_SEEDS
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.policy import deployable
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.quantization.net import Conv2d
from quarl_bench.quantization.ptq import count_levels
from quarl_bench.quantization.scheme import Scheme
from tests.support.places import POLICIES
from tests.support.sizes import choose, pick_policies

CARTPOLE = find_environment("cartpole")
SEEDS = range(TEST_SEEDS, TEST_SEEDS + 50)


def play(stored, scheme):
    policy = stored.policy
    states = collect_observations(policy, CARTPOLE, 10_000, CALIBRATION_SEEDS)
    return roll_out(deployable(policy.quantize(Scheme.parse(scheme), states)), CARTPOLE, SEEDS, reference=policy)


@pytest.mark.parametrize("seed", range(3))
def test_two_bit_weights_and_activations_lose_cartpole(baseline, seed):
    rollouts = play(baseline(f"ppo-cartpole-seed{seed}"), "int2")
    assert rollouts.returns.mean() < 250
    assert rollouts.agreement < 0.8


@pytest.mark.parametrize("seed", range(3))
def test_two_bit_weights_change_actions(baseline, seed):
    """CartPole needs so little that 2-bit weights still balance it: the actions, not the return, show the quantizer."""
    assert play(baseline(f"ppo-cartpole-seed{seed}"), "w2").agreement < 0.95
    assert play(baseline(f"ppo-cartpole-seed{seed}"), "w8").agreement > 0.98


def test_two_bit_weights_cost_lunarlander_return(baseline):
    stored = baseline("ppo-lunarlander-seed0")
    environment, seeds = find_environment("lunarlander"), range(TEST_SEEDS, TEST_SEEDS + 20)
    full = roll_out(stored.policy, environment, seeds)
    coarse = roll_out(stored.policy.quantize(Scheme.parse("w2")), environment, seeds, reference=stored.policy)
    assert coarse.returns.mean() < full.returns.mean()
    assert coarse.agreement < 0.7


@pytest.mark.parametrize("name", choose(["w4pc"], ["w8", "w4", "w3", "w2", "w2floor", "w4sym", "w4pc"]))
def test_committed_policies_have_at_most_two_to_the_n_levels(name):
    names = pick_policies([file.parent.name for file in POLICIES.glob("*/policy.safetensors")])
    if not names:
        pytest.skip(f"no baselines in {POLICIES}")
    scheme = Scheme.parse(name)
    for policy in names:
        for layer in load_policy(POLICIES / policy).policy.quantize(scheme).net.layers:
            per_channel = scheme.granularity_of(isinstance(layer, Conv2d)) == "per_channel"
            assert count_levels(layer.weight, per_channel=per_channel) <= 2**scheme.bit_width, (policy, name)
            assert layer.weight.dtype == np.float32
