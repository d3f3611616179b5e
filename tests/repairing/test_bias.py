"""Corrected biases: the average error of every neuron goes, whatever it was."""

import numpy as np
import pytest

from quarl_bench.policies.policy import require_integer
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.bias import correct_biases
from tests.support.strategies import make_policy, normal

STATES = normal(np.random.default_rng(0), 400, 4, spread=2.0)


def find_bias(policy, rounded):
    return np.abs((rounded.outputs(STATES) - policy.outputs(STATES)).mean(axis=0)).max()


@pytest.mark.parametrize("scheme", ["int3acc", "int4pccleacc", "int4eqacc"])
def test_outputs_are_right_on_average(scheme):
    policy = make_policy()
    rounded = require_integer(policy.quantize(Scheme.parse(scheme), STATES))
    corrected = correct_biases(policy.rewrite(Scheme.parse(scheme), STATES), rounded, STATES)
    # Within half a step of the last layer's bias; the sums themselves are exact.
    assert find_bias(policy, corrected) <= 0.51 * float(rounded.net.output.scale) + 1e-5
    assert find_bias(policy, rounded) > 5 * find_bias(policy, corrected)


def test_only_biases_change():
    policy = make_policy()
    rounded = require_integer(policy.quantize(Scheme.parse("int4"), STATES))
    corrected = correct_biases(policy, rounded, STATES)
    for before, after in zip(rounded.net.layers, corrected.net.layers, strict=True):
        np.testing.assert_array_equal(before.weight, after.weight)
        assert before.output == after.output
        assert (before.bias != after.bias).any()
