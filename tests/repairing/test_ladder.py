"""Remedies and forms: what a policy has a use for, what a target runs, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.errors import DeploymentError, SpecError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.ladder import find_unfit, list_forms, list_ranges, list_remedies
from tests.support.strategies import make_net, normal

STATES = normal(np.random.default_rng(0), 100, 4)


def make_policy(activation=Activation.RELU, **transform):
    return PolicyNet(
        ObservationTransform((4,), **transform), make_net(4, 8, 2, activation=activation), ActionHead(HeadKind.ARGMAX)
    )


def end_in_tanh():
    policy = make_policy()
    first, last = policy.net.layers
    return replace(policy, net=Net((4,), (first, replace(last, activation=Activation.TANH))))


def name_all(policy, scheme="int8"):
    return [form.name for form in list_forms(Scheme.parse(scheme), policy)]


def test_the_plain_scheme_comes_first_and_every_name_once():
    names = name_all(make_policy())
    assert names[0] == "int8"
    assert len(names) == len(set(names)) == 2**3 * 3
    assert {"int8pceqcleacc", "int8acc", "int8pcacc"} <= set(names)
    assert all(Scheme.parse(name).name == name for name in names)


def test_ranges_are_searched_for_a_form():
    names = [form.name for form in list_ranges(Scheme.parse("int8eqacc"))]
    assert names == ["int8pct999eqacc", "int8pct9999eqacc", "int8mseeqacc"]


def test_bits_stay():
    assert all(name.startswith("int6") for name in name_all(make_policy(), "int6"))


@pytest.mark.parametrize(
    ("policy", "option", "reason"),
    [
        (make_policy(Activation.TANH), "cle", "no hidden layer ends in a ReLU"),
        (make_policy(normalization=Normalization(np.zeros(4), np.ones(4))), "eq", "like ranges already"),
        (end_in_tanh(), "acc", "no plain sum"),
    ],
)
def test_what_a_policy_has_no_use_for_is_left_out_with_a_reason(policy, option, reason):
    remedies = {remedy.option: remedy.reason for remedy in list_remedies(policy)}
    assert reason in remedies[option]
    assert not any(option in name for name in name_all(policy))


@pytest.mark.parametrize("name", ["fp32", "w8", "qat8", "int8pc", "i8c3o8", "int8eq"])
def test_only_bits_are_named(name):
    with pytest.raises(SpecError, match="repair takes int<bits> without options"):
        list_forms(Scheme.parse(name), make_policy())


def test_a_target_runs_what_it_has_a_form_for():
    plain, wide = (require_integer(make_policy().quantize(Scheme.parse(name), STATES)) for name in ("int4", "int4acc"))
    for target in ("any", "c", "fpga"):
        assert find_unfit(wide, target) == find_unfit(plain, target) == ""
    falling = require_integer(make_policy(Activation.GELU).quantize(Scheme.parse("int8acc"), STATES))
    assert find_unfit(falling, "fpga") == ""
    other = replace(plain, net=plain.net.with_requantization(Requantization.GEMMLOWP))
    assert "gemmlowp" in find_unfit(other, "fpga")
    with pytest.raises(DeploymentError, match="unknown backend 'tpu'"):
        find_unfit(plain, "tpu")


@pytest.mark.needs("litert")
def test_an_alias_is_a_target():
    policy = require_integer(make_policy().quantize(Scheme.parse("int4"), STATES))
    assert "8-bit signed activations" in find_unfit(policy, "tflite")
