"""Mixed precision stays inside the convolutions: what is kept, learned and extracted is fp32."""

import io
from typing import Any

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.torch_layers import NatureCNN

from quarl_bench.policies.algorithm import find_algorithm
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.system.registry import load
from quarl_bench.training.recipes import Recipe
from quarl_bench.training.sb3.mixed_precision import MixedNatureCNN, MixedQNetwork
from quarl_bench.training.sb3.models import make_model
from tests.support.mixed_precision import SETTINGS, make_images
from tests.support.sizes import choose

EPS = 2.0**-7  # of bfloat16: the distance from 1 to the next number
everywhere = pytest.mark.parametrize("algo", SETTINGS)


def make(algo: str, precision: str, *, stock: bool = False) -> Any:
    recipe = Recipe(algo, "pong", "a test", 64, 1, SETTINGS[algo], policy="CnnPolicy", precision=precision)
    return make_model(recipe, make_images(), seed=1, stock=stock)


def make_twins(algo: str, precision: str = "bf16") -> tuple[Any, Any]:
    """A mixed model and a stock one with its weights, far enough from their start that actions depend on images."""
    mixed, plain = make(algo, precision), make(algo, "fp32", stock=True)
    with torch.no_grad():
        for name, parameter in mixed.policy.named_parameters():
            if "extractor" not in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif parameter.ndim > 1:
                parameter.mul_(3)
    plain.policy.load_state_dict(mixed.policy.state_dict())
    return mixed, plain


def draw_images(count: int) -> torch.Tensor:
    """Of two or three rectangles each: where every pixel is drawn all images look alike to a network."""
    rng = np.random.default_rng(0)
    images = np.zeros((count, 4, 84, 84), np.uint8)
    for image in images:
        for top, left in rng.integers(0, 60, (rng.integers(2, 4), 2)):
            image[rng.integers(4), top : top + 24, left : left + 24] = rng.integers(256)
    return torch.from_numpy(images)


def find_network(model: BaseAlgorithm) -> Any:
    return model.policy.q_net if isinstance(model, sb3.DQN) else model.policy


def read_features(model: BaseAlgorithm, images: torch.Tensor) -> torch.Tensor:
    network = find_network(model)
    return network.extract_features(images, network.features_extractor)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@everywhere
def test_the_network_is_that_of_stable_baselines(algo: str, precision: str) -> None:
    mixed, plain = make(algo, precision), make(algo, "fp32", stock=True)
    assert type(mixed.policy) is load(find_algorithm(algo).half["mixed"])
    assert type(find_network(mixed).features_extractor) is MixedNatureCNN
    assert type(find_network(plain).features_extractor) is NatureCNN
    found, expected = mixed.policy.state_dict(), plain.policy.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)  # equal seeds, equal weights


@everywhere
def test_features_are_those_of_fp32_but_for_rounding(algo: str) -> None:
    mixed, plain = make_twins(algo)
    images = draw_images(16)
    found, expected = read_features(mixed, images), read_features(plain, images)
    assert found.dtype == expected.dtype == torch.float32
    error = (found - expected).norm() / expected.norm()
    assert EPS / 16 < error < EPS  # measured: 0.6 EPS; fp32 by accident would be next to nothing
    assert (found - expected).abs().max() < 2 * EPS * expected.abs().max()


@everywhere
def test_in_fp32_it_computes_what_stable_baselines_does(algo: str) -> None:
    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for model in make_twins(algo, "fp32"):
        features = read_features(model, draw_images(16))
        features.square().mean().backward()
        found.append((features.detach(), find_network(model).features_extractor.cnn[0].weight.grad))
    for ours, stock in zip(*found, strict=True):
        torch.testing.assert_close(ours, stock, rtol=1e-4, atol=1e-5 * stock.abs().max().item())


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_gradients_and_heads_are_fp32(algo: str) -> None:
    mixed, plain = make_twins(algo)
    images, actions = draw_images(16), torch.arange(16) % 6
    for model in (mixed, plain):
        values, log_probabilities, entropy = model.policy.evaluate_actions(images, actions)
        assert {values.dtype, log_probabilities.dtype, entropy.dtype} == {torch.float32}
        (values.square().mean() - log_probabilities.mean()).backward()
    features = read_features(mixed, images)
    logits = mixed.policy.get_distribution(images).distribution.logits
    expected = torch.log_softmax(torch.nn.functional.linear(features, *mixed.policy.action_net.parameters()), dim=1)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-4)
    for (name, found), other in zip(mixed.policy.named_parameters(), plain.policy.parameters(), strict=True):
        assert (found.dtype, found.grad.dtype) == (torch.float32, torch.float32), name
        cosine = torch.nn.functional.cosine_similarity(found.grad.flatten(), other.grad.flatten(), dim=0)
        assert cosine > 0.99, name


@everywhere
def test_what_is_learned_is_kept_in_fp32(algo: str) -> None:
    model = make(algo, "bf16")
    before = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    model.learn(32)
    after = model.policy.state_dict()
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}
    assert not any(torch.equal(before[name], after[name]) for name in after if name.endswith("weight"))
    moments = [value for state in model.policy.optimizer.state.values() for value in state.values()]
    assert {moment.dtype for moment in moments if torch.is_tensor(moment)} == {torch.float32}
    rounded = [tensor.bfloat16().float() for tensor in after.values()]
    assert not all(torch.equal(tensor, other) for tensor, other in zip(after.values(), rounded, strict=True))


@everywhere
def test_the_extracted_policy_acts_as_the_fp32_model(algo: str) -> None:
    mixed, plain = make_twins(algo)
    images = draw_images(64).numpy()
    expected, _ = plain.predict(images, deterministic=True)
    policy = extract(mixed)
    assert np.array_equal(policy.act(images), expected)
    assert len(set(expected.tolist())) == 6
    assert [layer.weight.dtype for layer in policy.net.layers] == [np.float32] * 5
    agreed = (mixed.predict(images, deterministic=True)[0] == expected).mean()
    assert agreed > 0.9  # the same policy, but for close calls


@pytest.mark.parametrize("algo", choose(["ppo"], list(SETTINGS)))
def test_a_saved_model_goes_on(algo: str) -> None:
    model = make(algo, "bf16")
    model.learn(32)
    stream = io.BytesIO()
    model.save(stream)
    loaded = type(model).load(stream, env=make_images(), device="cpu")
    assert type(loaded.policy) is load(find_algorithm(algo).half["mixed"])
    images = draw_images(16)
    assert read_features(loaded, images).equal(read_features(model, images))
    found, expected = (m.predict(images.numpy(), deterministic=True)[0] for m in (loaded, model))
    assert np.array_equal(found, expected)
    loaded.learn(32, reset_num_timesteps=False)
    assert loaded.num_timesteps == 64


def test_the_target_network_is_another_one_of_its_kind() -> None:
    model = make("dqn", "bf16")
    network, target = model.policy.q_net, model.policy.q_net_target
    assert type(network) is type(target) is MixedQNetwork
    images = draw_images(4)
    assert network(images).equal(target(images))
    with torch.no_grad():
        network.features_extractor.cnn[0].weight.mul_(2)
    assert not network(images).equal(target(images))
    model.learn(8)  # no gradient step yet
    stream = io.BytesIO()
    model.save(stream)
    loaded = sb3.DQN.load(stream, device="cpu").policy
    assert loaded.q_net(images).equal(network(images))
    assert loaded.q_net_target(images).equal(target(images))
