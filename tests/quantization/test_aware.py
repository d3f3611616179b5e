"""Quantization-aware training: what is watched, what is rounded, and that the integers are what was trained."""

import copy

import gymnasium
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import QuantizationError, SpecError
from quarl_bench.policies.sources.sb3.model import extract, extract_quantized
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.training.aware import Quantizer, fake_quantize_ste
from quarl_bench.quantization.training.aware_net import make_aware
from quarl_bench.training.sb3.aware import (
    AwarePolicy,
    find_aware_path,
    find_policy_class,
    freeze,
    is_frozen,
    list_networks,
)
from tests.support.layers import forward_layer
from tests.support.sizes import choose

STEPS = choose(60, 200)
QAT4 = Scheme.parse("qat4")
CASES = {
    "ppo": ("CartPole-v1", {"n_steps": 32, "batch_size": 32}),
    "a2c": ("CartPole-v1", {}),
    "dqn": ("CartPole-v1", {"learning_starts": 20, "target_update_interval": 40, "buffer_size": 500}),
    "ddpg": ("Pendulum-v1", {"learning_starts": 20, "batch_size": 32, "buffer_size": 500}),
    "td3": ("Pendulum-v1", {"learning_starts": 20, "batch_size": 32, "buffer_size": 500}),
}


def make_model(algo, scheme="qat4", **options):
    environment, arguments = CASES[algo]
    kwargs = {"scheme": scheme, "net_arch": [16, 16]} | options.pop("policy_kwargs", {})
    policy = find_policy_class(algo, "MlpPolicy")
    return getattr(sb3, algo.upper())(policy, environment, seed=0, device="cpu", policy_kwargs=kwargs, **arguments)


def train(algo, scheme="qat4", **options):
    """As many steps rounded as in full precision."""
    model = make_model(algo, scheme, **options)
    model.learn(STEPS)
    freeze(model)
    model.learn(STEPS, reset_num_timesteps=False)
    return model


def draw_observations(model, count=300):
    shape = model.observation_space.shape
    return np.random.default_rng(0).normal(size=(count, *shape)).astype(np.float32)


def buffers(module):
    return {name: value.clone() for name, value in module.state_dict().items() if "running_" in name}


@given(st.lists(st.floats(-10, 10, width=32), min_size=1), st.floats(0.015625, 3, width=32), st.integers(2, 8))
def test_rounding_is_the_integers_and_its_gradient_the_identity(values, scale, bits):
    x = torch.tensor(values, requires_grad=True)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    y = fake_quantize_ste(x, torch.tensor(scale), low, high, reciprocal=True)
    steps = np.clip(np.rint(np.float32(values) * (np.float32(1) / np.float32(scale))), low, high)
    assert np.array_equal(y.detach().numpy(), steps.astype(np.float32) * np.float32(scale))
    (y * torch.arange(len(values))).sum().backward()
    assert torch.equal(x.grad, torch.arange(len(values), dtype=torch.float32))


def test_a_quantizer_watches_in_training_only_and_then_rounds():
    quantizer = Quantizer()
    x = torch.tensor([[-1.0, 3.0]])
    quantizer.eval()
    assert torch.equal(quantizer(x), x)
    with pytest.raises(QuantizationError, match="nothing was seen"):
        quantizer.read_range()
    quantizer.train()
    assert torch.equal(quantizer(x), x)
    assert quantizer.read_range().high == 3.0
    quantizer(torch.tensor([[103.0]]))
    assert quantizer.read_range().high == pytest.approx(4.0)  # a hundredth of the way


@pytest.mark.parametrize("algo", CASES)
@pytest.mark.parametrize("scheme", choose(["qat2"], ["qat8", "qat4", "qat2"]))
def test_what_was_trained_is_what_the_integers_compute(algo, scheme):
    model = train(algo, scheme)
    policy = extract_quantized(model)
    observations = draw_observations(model)
    predicted = model.predict(observations, deterministic=True)[0]
    assert np.allclose(policy.act(observations), predicted, atol=1e-6)
    levels = [len(np.unique(layer.weight)) for layer in policy.net.layers]
    assert max(levels) <= 2 ** int(scheme[3:]) - 1
    integer = policy.to_integer()
    inputs = policy.net.input.quantize(policy.transform.apply(observations))
    for index in range(len(policy.net.layers)):
        ours, golden = forward_layer(policy.net, index, inputs), integer.net.run_layer(index, inputs)
        assert np.abs(ours - golden).max() <= 1
        inputs = golden


def test_before_the_freeze_nothing_is_rounded_and_training_is_the_same():
    plain = sb3.PPO("MlpPolicy", "CartPole-v1", seed=0, n_steps=32, batch_size=32, policy_kwargs={"net_arch": [16, 16]})
    plain.learn(128)
    aware = make_model("ppo").learn(128)
    assert not is_frozen(aware)
    pairs = zip(plain.policy.parameters(), aware.policy.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    with pytest.raises(QuantizationError, match="still watch"):
        extract_quantized(aware)


def test_ranges_are_frozen_and_master_weights_learn_on():
    model = train("ppo")
    state, weights = buffers(model.policy), [p.detach().clone() for p in model.policy.parameters()]
    model.learn(64, reset_num_timesteps=False)
    assert all(torch.equal(value, state[name]) for name, value in buffers(model.policy).items())
    assert any(not torch.equal(p, w) for p, w in zip(model.policy.parameters(), weights, strict=True))
    freeze(model)  # the second time does nothing
    assert all(torch.equal(value, state[name]) for name, value in buffers(model.policy).items())


def test_the_ranges_of_values_follow_and_stay_exact():
    model = train("dqn")
    before = buffers(model.policy.q_net)
    model.learn(100, reset_num_timesteps=False)
    moved = [name for name, value in buffers(model.policy.q_net).items() if not torch.equal(value, before[name])]
    assert any("range" in name for name in moved)
    assert not any("format" in name for name in moved)
    freeze(model)
    formats = {name: value for name, value in buffers(model.policy.q_net).items() if "format" in name}
    assert any(not torch.equal(value, before[name]) for name, value in formats.items())
    target = buffers(model.policy.q_net_target)
    assert all(torch.equal(value, target[name]) for name, value in formats.items())
    policy, observations = extract_quantized(model), draw_observations(model)
    assert np.array_equal(policy.act(observations), model.predict(observations, deterministic=True)[0])


def test_only_the_policy_is_quantized():
    model = make_model("ddpg")
    aware = {type(m).__name__ for m in model.policy.critic.modules()}
    assert not any(name.startswith("Aware") for name in aware)
    assert len(list_networks(model.policy)) == 2
    model = make_model("ppo")
    assert type(model.policy.value_net) is torch.nn.Linear
    assert type(model.policy.mlp_extractor.value_net[0]) is torch.nn.Linear


class TestState:
    """What has to survive what stable-baselines3 does to models."""

    @pytest.mark.parametrize("algo", CASES)
    def test_save_and_load(self, algo, tmp_path):
        model = train(algo)
        model.save(tmp_path / "model.zip")
        loaded = type(model).load(tmp_path / "model.zip", device="cpu")
        observations = draw_observations(model)
        assert is_frozen(loaded)
        assert np.array_equal(*(m.predict(observations, deterministic=True)[0] for m in (model, loaded)))

    def test_a_policy_saved_alone(self, tmp_path):
        model = train("ppo")
        model.policy.save(tmp_path / "policy")
        loaded = type(model.policy).load(tmp_path / "policy", device="cpu")
        assert isinstance(loaded, AwarePolicy)
        assert all(torch.equal(value, buffers(model.policy)[name]) for name, value in buffers(loaded).items())

    def test_deepcopy(self):
        model = train("ppo")
        model.policy.action_dist = None  # holds the last batch's graph, whichever class the policy has
        twin = copy.deepcopy(model.policy)
        twin.action_dist = model.policy.action_dist = make_model("ppo").policy.action_dist
        observations = torch.as_tensor(draw_observations(model))
        assert torch.equal(twin._predict(observations, True), model.policy._predict(observations, True))
        find_aware_path(twin).steps[0][0].running_weight_scale.fill_(1.0)
        assert not torch.equal(find_aware_path(model.policy).steps[0][0].running_weight_scale, torch.ones(1))

    @pytest.mark.parametrize(
        ("algo", "names"), [("dqn", ("q_net", "q_net_target")), ("ddpg", ("actor", "actor_target"))]
    )
    def test_targets_have_the_same_scales_at_once_and_later(self, algo, names):
        model = make_model(algo)
        model.learn(100)
        freeze(model)
        for _ in range(2):
            online, target = (buffers(getattr(model.policy, name)) for name in names)
            assert online.keys() == target.keys()
            assert all(torch.equal(value, target[name]) for name, value in online.items() if "format" in name)
            assert all(torch.equal(value, target[name]) for name, value in online.items() if "scale" in name)
            model.learn(100, reset_num_timesteps=False)

    def test_train_and_eval_switches(self):
        model = train("ppo")
        observations = torch.as_tensor(draw_observations(model))
        outputs = []
        for mode in (True, False, True):
            model.policy.set_training_mode(mode)
            outputs.append(model.policy._predict(observations, True))
        assert torch.equal(outputs[0], outputs[1])
        assert torch.equal(outputs[0], outputs[2])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_images_have_a_scale_per_channel(precision):
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    from quarl_bench.training.sb3.mixed_precision import NAME, MixedNatureCNN

    class Images(gymnasium.Env):
        observation_space, action_space = space, gymnasium.spaces.Discrete(3)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.draw(), {}

        def draw(self):
            return self.np_random.integers(0, 256, size=(4, 84, 84), dtype=np.uint8)

        def step(self, action):
            return self.draw(), float(action), bool(self.np_random.random() < 0.1), False, {}

    kwargs = {"scheme": "qat8", "features_extractor_class": MixedNatureCNN, "net_arch": [], "precision": precision}
    policy = find_policy_class("ppo", NAME)
    model = sb3.PPO(policy, Images(), n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu", policy_kwargs=kwargs)
    model.learn(16)
    freeze(model)
    model.learn(16, reset_num_timesteps=False)
    quantized = extract_quantized(model)
    assert [len(layer.weight_scale) for layer in quantized.net.layers] == [32, 64, 64, 1, 1]
    observations = np.random.default_rng(0).integers(0, 256, size=(20, 4, 84, 84), dtype=np.uint8)
    outputs = quantized.to_integer().outputs(observations)
    with torch.no_grad():
        ours = model.policy.get_distribution(torch.as_tensor(observations)).distribution.logits
    ulp = float(np.spacing(ours.abs().max().numpy()))
    ours = ours - ours.mean(1, keepdim=True)
    expected = torch.as_tensor(outputs - outputs.mean(1, keepdims=True))
    step = float(quantized.net.layers[-1].output.scale)
    # Mixed precision rounds products that integers do not: some outputs fall on a neighbouring step. They come back
    # from logarithms of probabilities in float32: whole steps are whole to a unit in the last place of these.
    assert (ours - expected).abs().max() <= (1e-5 if precision == "fp32" else 2 * step + ulp)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (torch.nn.CELU(), "CELU.*cannot be quantized"),
        (torch.nn.Linear(4, 4, bias=False), "has no bias"),
        (torch.nn.Conv2d(1, 1, 3, padding=1), "no padding"),
    ],
)
def test_what_cannot_be_quantized_is_named(layer, said):
    root = torch.nn.Sequential(torch.nn.Linear(4, 4), layer)
    with pytest.raises(QuantizationError, match=said):
        make_aware(root, [*root], QAT4)


def test_what_is_not_aware_says_so():
    model = sb3.PPO("MlpPolicy", "CartPole-v1", device="cpu")
    with pytest.raises(QuantizationError, match="not made for quantization-aware training"):
        extract_quantized(model)
    with pytest.raises(SpecError, match="cannot be trained quantization-aware"):
        find_policy_class("sac", "MlpPolicy")
    assert extract(model).net.outputs == 2
