"""A witness that is asked in blocks, and seldom, says what it would have said state by state."""

import numpy as np
import pytest

from quarl_bench.evaluation.acting import Deterministic, Sampled
from quarl_bench.evaluation.agreement import VECTORS as BLOCK
from quarl_bench.evaluation.agreement import Witness, compare
from quarl_bench.evaluation.batches.crossings import Crossings, Leg
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
    assert witness.tell(Crossings())[0].tolist() == agreed.tolist()


@pytest.mark.parametrize("every", [1, 2, 7])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 1.0])
def test_behind_the_first_difference_one_state_stands_for_several(every, share):
    policy, rng, asked = make_fragile(), np.random.default_rng(1), 0
    lengths = np.array([5, 301, 200])
    apart = [rng.random(length) < share for length in lengths]

    class Counted(Deterministic):
        def choose(self, policy, observations, drawn):
            nonlocal asked
            asked += len(observations)
            return super().choose(policy, observations, drawn)

    acting = Counted()
    witness = Witness(policy, acting, len(lengths), every)
    for step, observations in enumerate(visit(max(lengths))):
        active = (step < lengths).nonzero()[0]
        actions = policy.act(observations)[active]
        other = np.array([apart[episode][step] for episode in active])
        witness.see(active, observations[active], np.where(other, actions + 1, actions), None)
    expected = []
    for length, differs in zip(lengths, apart, strict=True):
        first = int(differs.argmax()) if differs.any() else length
        behind = every * int(differs[first + every :: every].sum())
        expected.append(max(length - (first < length) - behind, 0))
    assert witness.tell(Crossings())[0].tolist() == expected
    assert asked <= sum(lengths)
    if share == 1.0:
        assert asked <= sum(lengths) / every + len(lengths) + BLOCK


def test_an_episode_with_a_difference_is_never_one_without():
    policy = make_fragile()
    witness = Witness(policy, Deterministic(), len(SEEDS), 7)
    everyone = np.arange(len(SEEDS))
    for step, observations in enumerate(visit(100)):
        actions = policy.act(observations)
        actions[1] += step == 40
        witness.see(everyone, observations, actions, None)
    assert witness.tell(Crossings())[0].tolist() == [100, 99, 100]


@pytest.mark.parametrize(
    "differs, agreed, alike",
    [
        (set(), [9, 6], [True, True]),
        ({(0, 1)}, [8, 6], [False, True]),
        ({(1, 3)}, [8, 5], [False, False]),
        ({(1, 0)}, [9, 5], [False, False]),  # behind a first difference fewer states are asked about
    ],
)
def test_the_rest_that_another_episode_tells_counts(differs, agreed, alike):
    """The first of two, of four states of its own, goes on as the second did behind one state."""
    policy, everyone = make_fragile(), np.arange(2)
    witness = Witness(policy, Deterministic(), 2)
    for step, observations in zip(range(6), visit(6), strict=True):
        active = everyone if step < 4 else everyone[1:]
        actions = policy.act(observations[active])
        actions += np.array([(episode, step) in differs for episode in active])
        witness.see(active, observations[active], actions, None)
    crossings = Crossings()
    crossings._joined[0] = Leg(1, 1, 0.0)
    counts, same = witness.tell(crossings)
    assert counts.tolist() == agreed
    assert same.tolist() == alike
