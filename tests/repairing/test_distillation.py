"""Distillation: modules that compute what integers do, a loss that falls, the same result twice, no test seed."""

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium.spaces import MultiDiscrete
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.checking.subject import Subject
from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.calibration import collect_states
from quarl_bench.evaluation.protocol import TEST_SEEDS, VALIDATION_SEEDS
from quarl_bench.experiments.environment_source import resolve_environment
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import StoredPolicy, hash_policy
from quarl_bench.policies.storage.integers import check_integers, hash_integers
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import distillation
from quarl_bench.repairing.distillation import distill, make_modules, refill
from quarl_bench.repairing.journal import Journal
from tests.support.choices import ByMethod
from tests.support.sizes import draw_examples
from tests.support.strategies import convolutions, inputs_of, make_net, make_policy, normal, perceptrons


@pytest.fixture
def subject(monkeypatch):
    monkeypatch.setattr(distillation, "STATES", 200)
    monkeypatch.setattr(distillation, "VISITED", 200)
    monkeypatch.setattr(distillation, "STEPS", 40)
    monkeypatch.setattr(distillation, "LONGEST", 4)
    policy = make_policy()
    return Subject(StoredPolicy(policy, hash_policy(policy), {"algo": "ppo"}), find_environment("cartpole"))


@draw_examples(30)
@given(st.one_of(perceptrons(), convolutions()), st.sampled_from(["int8", "int4pc", "int8pcpow2", "int4"]))
def test_modules_compute_with_the_numbers_of_the_integers(net: Net, scheme: str) -> None:
    parsed = Scheme.parse(scheme)
    x = inputs_of(net, 50)
    quantized = quantize_net(net, parsed, x)
    modules, path = make_modules(net, parsed)
    path.adopt(quantized)
    with torch.no_grad():
        got = modules(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, quantized.forward(x), rtol=1e-4, atol=2 * float(quantized.formats[-1].scale))
    same = refill(quantized, net)
    for before, after in zip(quantized.layers, same.layers, strict=True):
        np.testing.assert_array_equal(before.weight, after.weight)
        np.testing.assert_array_equal(before.bias, after.bias)


@pytest.mark.parametrize("activation", [Activation.RELU, Activation.TANH])
def test_wide_outputs_are_not_rounded(activation):
    net, parsed = make_net(4, 8, 2, activation=activation), Scheme.parse("int4pcacc")
    x = inputs_of(net, 50)
    quantized = quantize_net(net, parsed, x)
    modules, path = make_modules(net, parsed)
    path.adopt(quantized)
    with torch.no_grad():
        np.testing.assert_allclose(modules(torch.from_numpy(x)).numpy(), quantized.forward(x), rtol=1e-3, atol=1e-4)


def test_the_loss_falls_and_the_same_seed_gives_the_same_integers(subject):
    scheme = Scheme.parse("int3acc")
    once, again = (distill(subject, scheme, 0, time.monotonic() + 100) for _ in range(2))
    assert not once.cut
    assert min(once.losses[1:]) < 0.7 * once.losses[0]
    assert once.losses == again.losses
    assert hash_integers(once.policy) == hash_integers(again.policy)
    check_integers(once.policy.net)


def test_another_seed_learns_otherwise(subject):
    one, other = (distill(subject, Scheme.parse("int6acc"), seed, time.monotonic()) for seed in (0, 1))
    assert hash_integers(one.policy) != hash_integers(other.policy) or one.losses != other.losses


def test_it_ends_in_time_with_the_best_so_far(subject):
    found = distill(subject, Scheme.parse("int3acc"), 0, time.monotonic())
    assert found.cut
    assert len(found.losses) == 2


def test_no_test_seed_is_played(subject, monkeypatch):
    seeds = []
    visit = distillation.visit
    monkeypatch.setattr(
        distillation, "visit", lambda policy, env, count, first: seeds.append(first) or visit(policy, env, count, first)
    )
    distill(subject, Scheme.parse("int4"), 0, time.monotonic() + 100)
    trained = [seed for seed in seeds if seed != VALIDATION_SEEDS]
    assert all(second - first >= 1000 for first, second in pairwise(trained))
    assert min(trained) > TEST_SEEDS + 10_000


def test_convolutions_learn_from_images(monkeypatch):
    for name, value in {"STATES": 80, "VISITED": 80, "STEPS": 200, "LONGEST": 2}.items():
        monkeypatch.setattr(distillation, name, value)
    rng = np.random.default_rng(0)
    layers = (
        Conv2d(0.2 * normal(rng, 4, 1, 8, 8), 0.2 * normal(rng, 4), 4, Activation.RELU),
        Linear(0.2 * normal(rng, 3, 4 * 8 * 8), 0.2 * normal(rng, 3)),
    )
    net = Net((1, 36, 36), layers)
    policy = PolicyNet(ObservationTransform((1, 36, 36), image=True), net, ActionHead(HeadKind.ARGMAX))
    subject = Subject(StoredPolicy(policy, hash_policy(policy), {"algo": "dqn"}), find_environment("catcha"))
    found = distill(subject, Scheme.parse("int3acc"), 0, time.monotonic() + 100)
    assert min(found.losses) < 0.7 * found.losses[0]


def test_it_learns_within_masks_and_goes_on_where_it_stopped(monkeypatch, tmp_path):
    for name, value in {"STATES": 200, "VISITED": 200, "STEPS": 40, "LONGEST": 2}.items():
        monkeypatch.setattr(distillation, name, value)
    plain = make_policy(HeadKind.PARTS)
    policy = replace(plain, head=replace(plain.head, masked=True))
    task = resolve_environment(lambda: ByMethod(MultiDiscrete([2, 3])))
    subject = Subject(StoredPolicy(policy, hash_policy(policy), {"algo": "maskableppo"}), task)
    subject._calibration = collect_states(policy, task, 400, 0)
    scheme = Scheme.parse("int3acc")
    whole = distill(subject, scheme, 0, time.monotonic() + 100)
    assert min(whole.losses[1:]) < whole.losses[0]
    for rounds in (1, 2):
        monkeypatch.setattr(distillation, "LONGEST", rounds)
        again = distill(subject, scheme, 0, time.monotonic() + 100, Journal(tmp_path))
    assert again.losses == whole.losses
    assert hash_integers(again.policy) == hash_integers(whole.policy)
