"""Learned rounding: less error than to nearest, one integer away at most, the same twice, in range."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.policies.storage.integers import check_integers, hash_integers
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import rounding
from quarl_bench.repairing.bias import correct_biases
from quarl_bench.repairing.rounding import Rounding, Sample, Size, compare_outputs, compare_sums, learn_rounding
from tests.support.sizes import draw_examples
from tests.support.strategies import inputs_of, make_net, normal, perceptrons

STATES = normal(np.random.default_rng(0), 500, 4)


def wrap(net: Net) -> PolicyNet:
    """A policy around a perceptron."""
    return PolicyNet(ObservationTransform(net.input_shape), net, ActionHead(HeadKind.ARGMAX))


def measure_error(form, rounded):
    """Mean squared error of the outputs, but for what all outputs of a state share."""
    error = rounded.outputs(STATES).astype(np.float64) - form.outputs(STATES)
    return float(((error - error.mean(axis=1, keepdims=True)) ** 2).mean())


@pytest.mark.parametrize("scheme", ["int8accw333", "int8pcaccw243", "int8clehbaaccw434"])
def test_it_lowers_the_error_of_few_bits(scheme, monkeypatch):
    monkeypatch.setattr(rounding, "NUMBERS", Size(400, 64))
    policy, parsed = wrap(make_net(4, 24, 24, 3)), Scheme.parse(scheme)
    form, nearest = policy.rewrite(parsed, STATES), require_integer(policy.quantize(parsed, STATES))
    corrected, learned = correct_biases(form, nearest, STATES), learn_rounding(form, nearest, STATES)
    assert measure_error(form, learned) < 0.7 * measure_error(form, corrected)


@draw_examples(15)
@given(perceptrons(), st.sampled_from(["int8", "int4pc", "int2", "int3cle", "int8pow2"]))
def test_weights_move_by_one_and_stay_in_range(net, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounding, "NUMBERS", Size(10, 16))
        policy, states, parsed = wrap(net), inputs_of(net, 40), Scheme.parse(name)
        form, nearest = policy.rewrite(parsed, states), require_integer(policy.quantize(parsed, states))
        learned = learn_rounding(form, nearest, states)
        check_integers(learned.net)
        for before, after in zip(nearest.net.layers, learned.net.layers, strict=True):
            assert np.abs(before.weight.astype(int) - after.weight).max(initial=0) <= 1
            assert before.output == after.output
        assert hash_integers(learned) == hash_integers(learn_rounding(form, nearest, states))


def test_a_layer_without_error_stays():
    layer = Linear(np.array([[1.0, -2.0]], np.float32), np.zeros(1, np.float32), Activation.NONE)
    rounded = require_integer(wrap(Net((2,), (layer,))).quantize(Scheme.parse("int8"), STATES[:, :2])).net.layers[0]
    exact = replace(rounded, weight=np.array([[1, -2]], np.int8), weight_scale=np.ones(1, np.float32))
    inputs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    sample = Sample(inputs, inputs @ torch.from_numpy(layer.weight).T, compare_sums(layer))
    found = Rounding(layer, exact).learn(sample, Size(5, 2), np.random.default_rng(0))
    np.testing.assert_array_equal(found, exact.weight)


def test_what_all_outputs_share_is_no_error():
    wanted = torch.from_numpy(normal(np.random.default_rng(1), 20, 3))
    shifted = wanted + torch.tensor([0.0, 0.0, 1.0])
    assert float(compare_outputs((3,))(wanted + 5.0, wanted)) < 1e-9
    assert float(compare_outputs((3,))(shifted, wanted)) > 0.1
    assert float(compare_outputs((2, 1))(shifted, wanted)) < 1e-9
