"""Remedies and candidates: what a policy has a use for, and what is refused."""

import numpy as np
import pytest

from quarl_bench.errors import SpecError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.net import Activation
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.ladder import list_candidates, list_remedies
from tests.support.strategies import make_net


def make_policy(activation=Activation.RELU, **transform):
    return PolicyNet(
        ObservationTransform((4,), **transform), make_net(4, 8, 2, activation=activation), ActionHead(HeadKind.ARGMAX)
    )


def name_all(policy, scheme="int8"):
    return [candidate.name for candidate in list_candidates(Scheme.parse(scheme), policy)]


def test_the_plain_scheme_comes_first_and_every_name_once():
    names = name_all(make_policy())
    assert names[0] == "int8"
    assert len(names) == len(set(names)) == 2 * 3 * 2 * 2
    assert {"int8pceqcle", "int8pct999", "int8pcpct9999eqcle"} <= set(names)
    assert all(Scheme.parse(name).name == name for name in names)


def test_bits_stay():
    assert all(name.startswith("int6") for name in name_all(make_policy(), "int6"))


@pytest.mark.parametrize(
    ("policy", "option", "reason"),
    [
        (make_policy(Activation.TANH), "cle", "no hidden layer ends in a ReLU"),
        (make_policy(normalization=Normalization(np.zeros(4), np.ones(4))), "eq", "like ranges already"),
    ],
)
def test_what_a_policy_has_no_use_for_is_left_out_with_a_reason(policy, option, reason):
    remedies = {remedy.option: remedy.reason for remedy in list_remedies(policy)}
    assert reason in remedies[option]
    assert not any(name.endswith(option) for name in name_all(policy))


@pytest.mark.parametrize("name", ["fp32", "w8", "qat8", "int8pc", "i8c3o8", "int8eq"])
def test_only_bits_are_named(name):
    with pytest.raises(SpecError, match="repair takes int<bits> without options"):
        list_candidates(Scheme.parse(name), make_policy())
