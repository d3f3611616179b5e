"""What a frozen normalization clips is counted; one that clips nothing is not spoken of."""

import numpy as np
import pytest

from quarl_bench.policies.clipping import count_clipped
from quarl_bench.policies.policy import require_integer
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import make_policy

STATES = np.float32([[100.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0]])


@pytest.mark.parametrize(("normalized", "seen"), [(True, 8), (False, 0)])
def test_values_are_counted_where_they_can_be_clipped(normalized, seen):
    counted, counter = count_clipped(make_policy(normalized=normalized))
    counted.act(STATES)
    assert counter.seen == seen
    assert counter.clipped == int(normalized)


def test_divided_inputs_are_not_clipped():
    policy = require_integer(make_policy().quantize(Scheme.parse("int8eq"), STATES))
    counted, counter = count_clipped(policy)
    np.testing.assert_array_equal(counted.act(STATES), policy.act(STATES))
    assert counter.seen == 0
