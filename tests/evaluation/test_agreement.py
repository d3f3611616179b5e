"""A witness that is asked in blocks says what it would have said state by state."""

import numpy as np
import pytest

from quarl_bench.evaluation.acting import Deterministic, Sampled
from quarl_bench.evaluation.agreement import BLOCK, Witness, compare
from quarl_bench.evaluation.noise import GumbelNoise
from tests.support.fragile import make_fragile

SEEDS = range(3)


def visit(steps: int):
    rng = np.random.default_rng(5)
    policy = make_fragile()
    for _ in range(steps):
        yield rng.normal(size=(len(SEEDS), *policy.net.input_shape)).astype(np.float32)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("steps", [1, BLOCK // 3, BLOCK // 3 + 1, 3 * BLOCK])
def test_blocks_count_what_single_states_count(steps, sampled):
    policy, everyone = make_fragile(), np.arange(len(SEEDS))

    def begin():
        return Sampled(GumbelNoise(SEEDS, policy.net.outputs)) if sampled else Deterministic()

    acting, single = begin(), begin()
    witness, agreed = Witness(policy, acting, len(SEEDS)), np.zeros(len(SEEDS), np.int64)
    others = np.random.default_rng(6)
    for observations in visit(steps):
        actions = others.integers(0, policy.net.outputs, len(SEEDS))
        witness.see(everyone, observations, actions, acting.draw(everyone, observations))
        expected = single.choose(policy, observations, single.draw(everyone, observations))
        agreed += compare(actions, expected, policy.head)
    assert 0 < agreed.sum() < steps * len(SEEDS) or steps == 1
    assert witness.tell().tolist() == agreed.tolist()
