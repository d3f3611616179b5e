"""Extraction from live stable-baselines3 models: the whole map from raw observation to action equals `predict`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor, NatureCNN
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.sb3.model import extract, read_normalization
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d
from quarl_bench.quantization.products import packed
from tests.support.fakes import PIXELS, Fake

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BOUNDS = spaces.Box(np.float32([-2, -1, 0]), np.float32([2, 3, 0.5]))
DISCRETE = spaces.Discrete(4)
RELATIVE = 1e-6  # of the action range
COUNT, IMAGES = 10_000, 500


def make_vector(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> DummyVecEnv:
    return DummyVecEnv([lambda: Fake(observations, actions)])


def make_model(
    algo: str, observations: spaces.Space[Any] = VECTOR, policy: str | type = "MlpPolicy", **options: Any
) -> BaseAlgorithm:
    """An untrained model with weights large enough that its actions vary."""
    discrete = algo == "dqn" or options.pop("discrete", False)
    vector = options.pop("vector", None) or make_vector(observations, DISCRETE if discrete else BOUNDS)
    if algo in ("dqn", "ddpg", "td3", "sac"):
        options.setdefault("buffer_size", 10)
    if "policy_kwargs" in options:
        options["policy_kwargs"] = dict(options["policy_kwargs"])  # SB3 writes into it
    model = getattr(sb3, algo.upper())(policy, vector, seed=0, device="cpu", **options)
    with torch.no_grad():
        for name, parameter in model.policy.named_parameters():
            if name in ("action_net.weight", "q_net.q_net.0.weight"):
                parameter.mul_(200)  # SB3 starts with actions that are all but zero
            elif parameter.ndim > 1 and "cnn" not in name:
                parameter.mul_(2)
            elif parameter.ndim == 1 and "log_std" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def check_equal(model: BaseAlgorithm, policy: PolicyNet, observations: NDArray[Any], seen: NDArray[Any]) -> None:
    """`seen` is what the model gets for `observations`."""
    expected, _ = model.predict(seen, deterministic=True)
    found = policy.act(observations)
    assert found.shape == expected.shape
    if policy.head.discrete:
        np.testing.assert_array_equal(found, expected)
        assert len(np.unique(found)) > 1
    else:
        assert policy.head.low is not None
        assert policy.head.high is not None
        span = policy.head.high - policy.head.low
        assert (np.abs(found - expected) <= RELATIVE * span).all()
        assert (found.std(axis=0) > 0.03 * span).all()


def sample(count: int = COUNT, spread: float = 1.5) -> NDArray[np.float32]:
    return (np.random.default_rng(0).standard_normal((count, 5)) * spread).astype(np.float32)


RELU = {"net_arch": [48, 16], "activation_fn": torch.nn.ReLU}
SPLIT = {"net_arch": {"pi": [24, 8], "vf": [10]}, "share_features_extractor": False}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{algo: (algo, {}) for algo in ("a2c", "ppo", "dqn", "ddpg", "td3", "sac")},
    "a2c_discrete": ("a2c", {"discrete": True}),
    "ppo_discrete": ("ppo", {"discrete": True}),
    **{f"{algo}_sde": (algo, {"use_sde": True}) for algo in ("a2c", "ppo", "sac")},
    "ppo_sde_squashed": ("ppo", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
    "sac_sde_limit": ("sac", {"use_sde": True, "policy_kwargs": {"clip_mean": 0.5}}),
    "sac_sde_no_limit": ("sac", {"use_sde": True, "policy_kwargs": {"clip_mean": 0.0}}),
    **{f"{algo}_relu": (algo, {"policy_kwargs": RELU}) for algo in ("a2c", "dqn", "sac")},
    "td3_tanh": ("td3", {"policy_kwargs": {"net_arch": [30], "activation_fn": torch.nn.Tanh}}),
    "ppo_split": ("ppo", {"policy_kwargs": SPLIT}),
    "ppo_linear": ("ppo", {"policy_kwargs": {"net_arch": []}}),
    "dqn_linear": ("dqn", {"policy_kwargs": {"net_arch": []}}),
}


@pytest.mark.parametrize("name", MODELS)
def test_extracted_policy_equals_predict(name: str) -> None:
    algo, options = MODELS[name]
    model = make_model(algo, **options)
    policy = extract(model)
    x = sample()
    check_equal(model, policy, x, x)


@pytest.mark.parametrize("name", MODELS)
def test_the_form_of_the_head(name: str) -> None:
    algo, options = MODELS[name]
    head = extract(make_model(algo, **options)).head
    squashed = algo in ("ddpg", "td3", "sac") or "squashed" in name
    discrete = "discrete" in name or algo == "dqn"
    assert head.kind is (HeadKind.ARGMAX if discrete else HeadKind.TANH if squashed else HeadKind.CLIP)
    assert head.mean_limit == {"sac_sde": 2.0, "sac_sde_limit": 0.5}.get(name)


class Deeper(NatureCNN):
    """NatureCNN of another width, as a subclass."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space, features_dim=64)


@pytest.mark.parametrize(
    "algo, options",
    [
        ("a2c", {"discrete": True}),
        ("ppo", {"discrete": True}),
        ("ppo", {}),
        ("dqn", {}),
        ("a2c", {"discrete": True, "policy_kwargs": {"share_features_extractor": False}}),
        ("ppo", {"discrete": True, "policy_kwargs": {"features_extractor_class": Deeper, "net_arch": [32]}}),
    ],
    ids=["a2c", "ppo", "ppo_continuous", "dqn", "separate", "subclass"],
)
def test_images(algo: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which stable-baselines3 sums; packed weights have a bound of their own, in test_packed.py."""
    monkeypatch.setattr(packed, "packs_weights", lambda: False)
    model = make_model(algo, PIXELS, "CnnPolicy", **options)
    policy = extract(model)
    assert sum(isinstance(layer, Conv2d) for layer in policy.net.layers) == 3
    assert policy.transform.shape == (1, 84, 84)
    images = np.random.default_rng(0).integers(0, 256, (IMAGES, 84, 84, 1), dtype=np.uint8)
    images[::2] //= 8  # dark ones
    images[1::4, :40] = 255
    check_equal(model, policy, images, images)
    np.testing.assert_array_equal(policy.act(images[:50].transpose(0, 3, 1, 2)), policy.act(images[:50]))


def test_stacked_frames() -> None:
    vector = VecFrameStack(make_vector(PIXELS, DISCRETE), 4)
    model = make_model("ppo", PIXELS, "CnnPolicy", vector=vector)
    policy = extract(model)
    assert policy.net.layers[0].weight.shape == (32, 4, 8, 8)
    images = np.random.default_rng(0).integers(0, 256, (20, 84, 84, 4), dtype=np.uint8)
    np.testing.assert_array_equal(policy.act(images), model.predict(images, deterministic=True)[0])


def test_images_without_convolutions_are_divided_too() -> None:
    model = make_model("ppo", spaces.Box(0, 255, (36, 36, 1), np.uint8))
    images = np.random.default_rng(0).integers(0, 256, (200, 36, 36, 1), dtype=np.uint8)
    check_equal(model, extract(model), images, images)


@pytest.mark.parametrize("algo", ["a2c", "dqn", "sac"])
@pytest.mark.parametrize("clip", [10.0, 0.5])
def test_normalized_observations(algo: str, clip: float) -> None:
    vector = VecNormalize(make_vector(VECTOR, DISCRETE if algo == "dqn" else BOUNDS), clip_obs=clip, epsilon=1e-3)
    rng = np.random.default_rng(1)
    vector.obs_rms.update(rng.normal([0, 5, -100, 0, 1], [1, 0.1, 50, 0, 7], (1000, 5)))
    model = make_model(algo, vector=vector)
    raw = rng.normal([0, 5, -100, 0, 1], [1, 0.1, 50, 1, 7], (COUNT, 5)).astype(np.float32)
    policy = extract(model)
    assert policy.transform.normalization is not None
    np.testing.assert_array_equal(policy.transform.apply(raw), vector.normalize_obs(raw))
    check_equal(model, policy, raw, np.asarray(vector.normalize_obs(raw)))


def test_statistics_are_copied() -> None:
    """Training that goes on does not change a policy."""
    vector = VecNormalize(make_vector(VECTOR, DISCRETE))
    model = make_model("ppo", vector=vector)
    policy = extract(model)
    x = sample(50)
    before = policy.outputs(x)
    vector.obs_rms.update(sample(50, spread=30))
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(policy.outputs(x), before)


def test_normalized_rewards_alone_leave_observations_raw() -> None:
    vector = VecNormalize(make_vector(VECTOR, DISCRETE), norm_obs=False)
    assert read_normalization(vector) is None
    assert extract(make_model("ppo", vector=vector)).transform.normalization is None


def test_a_model_without_an_environment_needs_a_word_about_its_statistics(tmp_path: Any) -> None:
    model = make_model("ppo", discrete=True)
    model.save(tmp_path / "model.zip")
    loaded = sb3.PPO.load(tmp_path / "model.zip", device="cpu")
    with pytest.raises(PolicyError, match="no environment, so its observation statistics are unknown"):
        extract(loaded)
    x = sample()
    check_equal(model, extract(loaded, None), x, x)
    statistics = Normalization(np.full(5, 2.0), np.full(5, 4.0))
    check_equal(model, extract(loaded, statistics), x, statistics.apply(x))
    with pytest.raises(PolicyError, match="neither statistics nor None"):
        extract(loaded, "guess")


def test_activations_and_widths_are_read() -> None:
    net = extract(make_model("a2c", policy_kwargs=RELU)).net
    assert [layer.weight.shape for layer in net.layers] == [(48, 5), (16, 48), (3, 16)]
    assert [layer.activation for layer in net.layers] == [Activation.RELU, Activation.RELU, Activation.NONE]


class Padded(NatureCNN):
    """A convolution that has no portable form."""

    def __init__(self, observation_space: spaces.Box) -> None:
        super().__init__(observation_space)
        self.cnn[0].padding = (2, 2)  # 84 pixels still give 20 columns


def make_unsupported() -> BaseAlgorithm:
    """An algorithm of another library, as far as `extract` looks at it."""
    stranger = type("Unheard", (BaseAlgorithm,), {"_setup_model": None, "learn": None, "__init__": lambda _: None})()
    stranger.__dict__.update(make_model("ppo").__dict__)
    return stranger


class Halved(FlattenExtractor):
    """A forward of its own."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations) / 2


class Backwards(ActorCriticPolicy):
    """Another action than the one its networks say."""

    def _predict(self, observation: torch.Tensor, deterministic: bool = False) -> torch.Tensor:
        return -super()._predict(observation, deterministic)


class Named(FlattenExtractor):
    """Nothing of its own but a name."""


REFUSED: dict[str, tuple[Callable[[], BaseAlgorithm], str]] = {
    "celu": (
        lambda: make_model("ppo", policy_kwargs={"activation_fn": torch.nn.CELU}),
        "module CELU.* has no portable",
    ),
    "mish": (lambda: make_model("sac", policy_kwargs={"activation_fn": torch.nn.Mish}), "module Mish"),
    "multi_discrete": (
        lambda: make_model("ppo", vector=make_vector(VECTOR, spaces.MultiDiscrete([2, 3], start=[1, 0]))),
        "counts actions from 0 alone",
    ),
    "forward": (
        lambda: make_model("ppo", policy_kwargs={"features_extractor_class": Halved}),
        r"Halved has forward\(\) of its own",
    ),
    "action": (lambda: make_model("ppo", policy=Backwards), r"Backwards has _predict\(\) of its own"),
    "padding": (
        lambda: make_model("dqn", PIXELS, "CnnPolicy", policy_kwargs={"features_extractor_class": Padded}),
        "no padding, dilation or groups",
    ),
    "unsupported": (make_unsupported, "Unheard is not one of A2C, DDPG, DQN, PPO, RECURRENTPPO, SAC, TD3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_line(name: str) -> None:
    make, said = REFUSED[name]
    with pytest.raises(PolicyError, match=said) as caught:
        extract(make())
    assert "\n" not in str(caught.value)


def test_a_class_that_computes_as_the_library_s_is_read() -> None:
    model = make_model("ppo", policy_kwargs={"features_extractor_class": Named})
    observations = sample()
    check_equal(model, extract(model), observations, observations)
