"""Clipped ranges: each shrinks where the decisions are better for it, and only there."""

import numpy as np
import pytest

from quarl_bench.policies.storage.integers import hash_integers
from quarl_bench.quantization.calibration.formats import Range
from quarl_bench.quantization.calibration.ranges import Ranges
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.candidate import compare_decisions
from quarl_bench.repairing.clipping import Clipping, shrink
from tests.support.strategies import make_policy, normal

STATES = normal(np.random.default_rng(0), 400, 4)
RARE = np.concatenate([STATES, [[40.0, -40.0, 40.0, -40.0]]]).astype(np.float32)  # one state far from all others


def find_regret(policy, rounded, states):
    return compare_decisions(policy, rounded, states)[1]


@pytest.mark.parametrize("scheme", ["int4", "int4pccle", "int4eqacc", "int3pcclehba"])
def test_decisions_are_never_worse_in_the_states_that_were_searched(scheme):
    policy = make_policy()
    clipping = Clipping.prepare(policy, Scheme.parse(scheme), STATES)
    whole, found = clipping.round(clipping.ranges), clipping.search()
    assert find_regret(policy, found, STATES) <= find_regret(policy, whole, STATES)


def test_what_is_rare_no_longer_coarsens_all_others():
    policy = make_policy()
    clipping = Clipping.prepare(policy, Scheme.parse("int4"), RARE)
    whole, found = clipping.round(clipping.ranges), clipping.search()
    assert found.net.input.scale < 0.3 * whole.net.input.scale
    assert find_regret(policy, found, STATES) < 0.5 * find_regret(policy, whole, STATES)


def test_a_search_is_the_same_again():
    first, second = (Clipping.prepare(make_policy(), Scheme.parse("int4"), STATES).search() for _ in range(2))
    assert hash_integers(first) == hash_integers(second)


def test_one_range_is_shrunk_at_a_time():
    ranges = Ranges(Range(-1.0, 2.0), (Range(0.0, 4.0), Range(-8.0, 8.0)))
    assert shrink(ranges, 0, 0.5) == Ranges(Range(-0.5, 1.0), ranges.outputs)
    assert shrink(ranges, 2, 0.5) == Ranges(ranges.input, (Range(0.0, 4.0), Range(-4.0, 4.0)))
