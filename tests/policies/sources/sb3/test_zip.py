"""Zips of stable-baselines3: today's equal their live model, the real agents play as published."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.evaluation.protocol import TEST_SEEDS
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.experiments.zoo_agents import read_agent
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.policies.sources.sb3.vecnormalize import read_statistics
from quarl_bench.policies.sources.sb3.zip import read_zip
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d
from tests.support.agents import (
    ALGOS,
    NO_ZOO,
    find_home,
    forge,
    list_zoo,
    load_state,
    make_agent,
    read_members,
    save_state,
    write_members,
)
from tests.support.fakes import PIXELS, Fake
from tests.support.forks import run_python
from tests.support.places import ROOT
from tests.support.sizes import choose

OTHER_BOUNDS = spaces.Box(np.float32([-2, -0.4, 1 / 3]), np.float32([2, 3, 0.5]))
VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)

# Mean, standard deviation and number of episodes of an earlier evaluation of these agents by stable-baselines3 itself.
PUBLISHED: dict[tuple[str, str], tuple[float, float | None, int]] = {
    ("a2c", "CartPole-v1"): (500, None, 20),
    ("ppo", "CartPole-v1"): (500, None, 20),
    ("dqn", "CartPole-v1"): (500, None, 20),
    ("ddpg", "MountainCarContinuous-v0"): (93.5, None, 20),
    ("sac", "MountainCarContinuous-v0"): (94.0, None, 20),
    ("a2c", "MountainCarContinuous-v0"): (91.1, None, 20),
    ("ppo", "MountainCarContinuous-v0"): (88.1, None, 20),
    ("a2c", "BipedalWalker-v3"): (301.2, 0.8, 10),
    ("ppo", "BipedalWalker-v3"): (245, 90, 10),
    ("a2c", "HalfCheetahBulletEnv-v0"): (2093, 31, 10),
    ("ppo", "HalfCheetahBulletEnv-v0"): (2917, 47, 10),
    ("a2c", "Walker2DBulletEnv-v0"): (997, 2, 10),
    ("ppo", "Walker2DBulletEnv-v0"): (2105, 18, 10),
    ("a2c", "HopperBulletEnv-v0"): (834, 279, 10),
    ("ppo", "HopperBulletEnv-v0"): (2321, 657, 10),
    ("ddpg", "HopperBulletEnv-v0"): (1288, 404, 10),
    ("sac", "HalfCheetah-v3"): (9402, 42, 10),
    ("sac", "Walker2d-v3"): (3856, 61, 10),
    ("ppo", "HalfCheetah-v3"): (5774, 285, 10),
    ("ppo", "Walker2d-v3"): (2914, 1017, 10),
    ("a2c", "HalfCheetah-v3"): (2925, 164, 10),
    ("a2c", "Hopper-v3"): (678, 342, 10),
    ("a2c", "Humanoid-v3"): (296, 76, 10),
    ("dqn", "LunarLander-v2"): (122, 65, 20),
    ("ppo", "LunarLander-v2"): (240, 28, 20),
}
AGENTS = list_zoo()
needs_zoo = pytest.mark.skipif(not AGENTS, reason=NO_ZOO)


def check_same(one: PolicyNet, other: PolicyNet) -> None:
    """Every number and every word is the same."""
    for a, b in zip(one.net.layers, other.net.layers, strict=True):
        assert type(a) is type(b)
        assert a.activation is b.activation
        assert getattr(a, "stride", None) == getattr(b, "stride", None)
        np.testing.assert_array_equal(a.weight, b.weight)
        np.testing.assert_array_equal(a.bias, b.bias)
    assert (one.transform.shape, one.transform.image) == (other.transform.shape, other.transform.image)
    assert (one.head.kind, one.head.mean_limit) == (other.head.kind, other.head.mean_limit)
    for a, b in ((one.head.low, other.head.low), (one.head.high, other.head.high)):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
    a, b = one.transform.normalization, other.transform.normalization
    assert (a is None) == (b is None)
    if a is not None and b is not None:
        np.testing.assert_array_equal(a.mean, b.mean)
        np.testing.assert_array_equal(a.variance, b.variance)
        assert (a.clip, a.epsilon) == (b.clip, b.epsilon)


def fake(observations: spaces.Space[Any], actions: spaces.Space[Any]) -> DummyVecEnv:
    return DummyVecEnv([lambda: Fake(observations, actions)])


WIDE = {"policy_kwargs": {"net_arch": [24, 8], "activation_fn": torch.nn.Tanh}}
SPLIT = {"net_arch": {"pi": [24, 8], "vf": [10]}, "share_features_extractor": False, "activation_fn": torch.nn.ReLU}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    **{algo: (algo, {}) for algo in ALGOS},
    **{f"{algo}_wide": (algo, WIDE) for algo in ALGOS},
    **{f"{algo}_sde": (algo, {"use_sde": True}) for algo in ("a2c", "ppo", "sac")},
    "a2c_discrete": ("a2c", {"environment": "CartPole-v1"}),
    "ppo_split": ("ppo", {"policy_kwargs": SPLIT}),
    "ppo_linear": ("ppo", {"policy_kwargs": {"net_arch": []}}),
    "dqn_linear": ("dqn", {"policy_kwargs": {"net_arch": []}}),
    "sac_sde_limit": ("sac", {"use_sde": True, "policy_kwargs": {"clip_mean": 0.5}}),
    "sac_sde_no_limit": ("sac", {"use_sde": True, "policy_kwargs": {"clip_mean": 0.0}}),
    "ppo_squashed": ("ppo", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_equals_its_live_one(name: str, tmp_path: Path) -> None:
    algo, options = MODELS[name]
    model = make_agent(algo, **options)
    model.save(tmp_path / "model.zip")
    agent = read_zip(tmp_path / "model.zip", normalization=None)
    check_same(agent.policy, extract(model))
    assert (agent.algo, agent.environment, agent.time_feature) == (algo, None, False)


@pytest.mark.parametrize("policy_kwargs", [{}, {"net_arch": [16]}, {"normalize_images": False}], ids=str)
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_images(algo: str, policy_kwargs: dict[str, Any], tmp_path: Path) -> None:
    options = {"buffer_size": 10} if algo == "dqn" else {}
    kind = "MlpPolicy" if "normalize_images" in policy_kwargs else "CnnPolicy"  # NatureCNN wants normalized images
    world = fake(PIXELS, spaces.Discrete(4))
    model = getattr(sb3, algo.upper())(kind, world, policy_kwargs=dict(policy_kwargs), device="cpu", **options)
    model.save(tmp_path / "model.zip")
    policy = read_zip(tmp_path / "model.zip", normalization=None).policy
    check_same(policy, extract(model))
    assert policy.transform.image == ("normalize_images" not in policy_kwargs)
    assert isinstance(policy.net.layers[0], Conv2d) == policy.transform.image


def test_statistics_as_saved_today(tmp_path: Path) -> None:
    world = VecNormalize(fake(VECTOR, OTHER_BOUNDS), clip_obs=5.0, epsilon=1e-3)
    world.obs_rms.update(np.random.default_rng(0).normal(3, 2, (100, 5)))
    world.reset()
    world.save(str(tmp_path / "statistics.pkl"))
    model = sb3.PPO("MlpPolicy", world, device="cpu")
    model.save(tmp_path / "model.zip")
    bounds = {"find_bounds": lambda _: (OTHER_BOUNDS.low, OTHER_BOUNDS.high)}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "args.yml").write_text("{algo: ppo, env: Elsewhere-v0}")
    agent = read_zip(tmp_path / "model.zip", normalization=tmp_path / "statistics.pkl", **bounds)
    check_same(agent.policy, extract(model))
    (tmp_path / "statistics.pkl").rename(tmp_path / "model" / "vecnormalize.pkl")
    check_same(read_zip(tmp_path / "model.zip", **bounds).policy, extract(model))
    world.norm_obs = False
    world.save(str(tmp_path / "model" / "vecnormalize.pkl"))
    assert read_statistics(tmp_path / "model" / "vecnormalize.pkl") is None


def test_bounds_that_are_printed_rounded_are_asked_for(tmp_path: Path) -> None:
    """1/3 has more digits than NumPy prints."""
    asked: list[str] = []

    def find_bounds(name: str) -> Any:
        asked.append(name)
        return OTHER_BOUNDS.low, OTHER_BOUNDS.high

    world = fake(VECTOR, OTHER_BOUNDS)
    model = sb3.PPO("MlpPolicy", world, device="cpu")
    model.save(tmp_path / "Elsewhere-v2.zip")
    with pytest.raises(PolicyError, match="printed rounded"):
        read_zip(tmp_path / "Elsewhere-v2.zip", normalization=None)
    agent = read_zip(tmp_path / "Elsewhere-v2.zip", normalization=None, find_bounds=find_bounds)
    check_same(agent.policy, extract(model))
    assert asked == ["Elsewhere-v2"]


def test_an_agent_is_stored_and_loaded(tmp_path: Path) -> None:
    (tmp_path / "CartPole-v1.zip").write_bytes(forge())
    agent = read_zip(tmp_path / "CartPole-v1.zip", normalization=None)
    stored = agent.store()
    assert (agent.environment, find_home(agent).slug) == ("CartPole-v1", "cartpole")
    assert save_policy(stored.policy, tmp_path / "stored", stored.metadata).sha256 == stored.sha256
    loaded = load_policy(tmp_path / "stored")
    check_same(loaded.policy, agent.policy)
    assert loaded.metadata == stored.metadata
    assert json.dumps(loaded.metadata)


CONFIGS = {
    "raw": ("{}", "", None),
    "no_folder": (None, "", None),
    "no_statistics": ("normalize: true", "", "vecnormalize.pkl is missing; without it the policy is unknown"),
    "no_statistics_either": ("normalize: \"{'norm_obs': True}\"", "", "vecnormalize.pkl is missing"),
    "contradiction": ("n_envs: 8", "statistics", "says raw observations, but vecnormalize.pkl lies beside it"),
    "unknown_wrapper": ("env_wrapper: gym_minigrid.wrappers.FlatObsWrapper", "", "unknown env_wrapper 'gym_minigrid"),
    "wrapper_with_arguments": (
        "env_wrapper: [{sb3_contrib.common.wrappers.TimeFeatureWrapper: {test_mode: true}}]",
        "",
        "a wrapper with arguments",
    ),
    "two_wrappers": ("env_wrapper: [utils.wrappers.TimeFeatureWrapper, other]", "", "unknown env_wrapper 'other'"),
    "frames": ("frame_stack: 4", "", "trained on 4 stacked observations"),
    "a_list": ("[1, 2]", "", "not the plain YAML"),
    "text": ("hello", "", "not a mapping"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_the_folder_says_is_honoured(name: str, tmp_path: Path) -> None:
    config, statistics, said = CONFIGS[name]
    (tmp_path / "CartPole-v1.zip").write_bytes(forge())
    folder = tmp_path / "CartPole-v1"
    if config is not None:
        folder.mkdir()
        (folder / "config.yml").write_text(config)
    if statistics:
        (folder / "vecnormalize.pkl").write_bytes(b"")
    if said is None:
        assert read_zip(tmp_path / "CartPole-v1.zip").policy.transform.normalization is None
        return
    with pytest.raises(PolicyError, match=said) as caught:
        read_zip(tmp_path / "CartPole-v1.zip")
    assert "\n" not in str(caught.value)


def test_statistics_beside_a_bare_zip_are_named_and_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "CartPole-v1.zip").write_bytes(forge())
    for name in ("vec_normalize.pkl", "replay.pkl"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(PolicyError, match=r"it seems \(vec_normalize\.pkl beside it\).*pass --normalization FILE"):
        read_zip(tmp_path / "CartPole-v1.zip")


@pytest.mark.parametrize(
    "word", ["sb3_contrib.common.wrappers.TimeFeatureWrapper", "utils.wrappers.TimeFeatureWrapper"]
)
@pytest.mark.parametrize("form", ["env_wrapper: {}", "env_wrapper: [{}]"])
def test_the_time_feature_is_noted(word: str, form: str, tmp_path: Path) -> None:
    (tmp_path / "CartPole-v1.zip").write_bytes(forge())
    (tmp_path / "CartPole-v1").mkdir()
    (tmp_path / "CartPole-v1" / "config.yml").write_text(form.format(word))
    agent = read_zip(tmp_path / "CartPole-v1.zip")
    assert agent.time_feature
    with pytest.raises(PolicyError, match=r"an agent of \(4,\) observations cannot play CartPole-v1"):
        find_home(agent)


def forge_entry(path: Path, key: str, **fields: Any) -> bytes:
    """A zip with these fields in one entry of its JSON."""
    members = read_members(path.read_bytes())
    settings = json.loads(members["data"])
    settings[key] |= fields
    return write_members(members | {"data": json.dumps(settings).encode()})


def rename(members: dict[str, bytes], old: str, new: str) -> None:
    state = load_state(members["policy.pth"])
    members["policy.pth"] = save_state({name.replace(old, new): tensor for name, tensor in state.items()})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "celu": ({"policy_kwargs": {"activation_fn": "<class 'torch.nn.modules.activation.CELU'>"}}, "activation_fn.*CELU"),
    "own_activation": ({"policy_kwargs": {"activation_fn": "<class '__main__.ReLU'>"}}, "has no portable form"),
    "own_extractor": ({"policy_kwargs": {"features_extractor_class": "<class '__main__.Net'>"}}, "no portable form"),
    "unknown_option": ({"policy_kwargs": {"dropout": 0.5}}, "'dropout' = '0.5' has no portable form"),
    "own_policy": ({"policy_class": {"__module__": "__main__"}}, "policy class comes from '__main__'"),
    "contrib": (
        {"policy_class": {"__module__": "sb3_contrib.common.torch_layers"}},
        "from 'sb3_contrib.common.torch_layers",
    ),
    "no_policy": ({"policy_class": None}, "policy class comes from 'None'"),
    "dictionary": ({"observation_space": {":type:": "<class 'gym.spaces.dict.Dict'>"}}, "no parts that can be read"),
    "tuple": ({"action_space": {":type:": "<class 'gym.spaces.x.Tuple'>"}}, "has Discrete or MultiDiscrete or"),
    "multi_discrete": ({"action_space": {":type:": "<class 'gym.spaces.x.MultiDiscrete'>"}}, "no counts that can"),
    "started_parts": (
        {"action_space": {":type:": "<class 'gym.spaces.x.MultiDiscrete'>", "nvec": "[2 3]", "start": "[0 1]"}},
        "counts actions from 0",
    ),
    "parts": (
        {"action_space": {":type:": "<class 'gym.spaces.x.MultiDiscrete'>", "nvec": "[2 3]"}},
        "a net of 2 outputs for 5 actions",
    ),
    "bits": (
        {"action_space": {":type:": "<class 'gym.spaces.x.MultiBinary'>", "n": "999999999"}},
        "a net of 2 outputs for 999999999 actions",
    ),
    "start": ({"action_space": {"start": "1"}}, "counts actions from 0"),
    "actions": ({"action_space": {"n": 3}}, "a net of 2 outputs for 3 actions"),
    "no_actions": ({"action_space": {"n": None}}, "no number of actions"),
    "observations": ({"observation_space": {"_shape": [5]}}, r"cannot follow the shape \(5,\)"),
    "no_shape": ({"observation_space": {"_shape": "4"}}, "no shape that can be read"),
    "huge_shape": ({"observation_space": {"_shape": [10**9, 10**9]}}, "larger than any observation"),
    "deep_shape": ({"observation_space": {"_shape": [1] * 99}}, "larger than any observation"),
    "other_algo": (
        {"policy_class": {"__module__": "stable_baselines3.dqn.policies"}},
        "do not belong to a policy of dqn",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_one_line(name: str, tmp_path: Path) -> None:
    settings, said = REFUSED[name]
    (tmp_path / "CartPole-v1.zip").write_bytes(forge(**settings))
    with pytest.raises(PolicyError, match=said) as caught:
        read_zip(tmp_path / "CartPole-v1.zip", normalization=None)
    assert "\n" not in str(caught.value)
    assert "CartPole-v1.zip" in str(caught.value)


WEIGHTS = {
    "recurrent": ("mlp_extractor.value_net", "lstm_critic", "weights of lstm_critic do not belong to a policy of ppo"),
    "normalization": ("policy_net.0", "policy_net.1", "modules other than Linear layers"),
    "another_key": ("policy_net.0.bias", "policy_net.0.running_mean", "a module without a portable form"),
    "no_output": ("action_net", "value_net_2", "weights of value_net_2"),
    "headless": ("action_net.", "action_net.other.", "a module without a portable form"),
    "extractor": ("value_net.weight", "features_extractor.net.weight", "no NatureCNN"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_that_nothing_explains_are_refused(name: str, tmp_path: Path) -> None:
    old, new, said = WEIGHTS[name]
    (tmp_path / "model.zip").write_bytes(forge(lambda members: rename(members, old, new)))
    with pytest.raises(PolicyError, match=said):
        read_zip(tmp_path / "model.zip", normalization=None)


def test_shared_layers_of_old_versions_come_first(tmp_path: Path) -> None:
    def share(members: dict[str, bytes]) -> None:
        state = load_state(members["policy.pth"])
        for kind, tensor in (("weight", torch.eye(4)), ("bias", torch.zeros(4))):
            state[f"mlp_extractor.shared_net.0.{kind}"] = tensor
        members["policy.pth"] = save_state(state)

    (tmp_path / "model.zip").write_bytes(forge(share))
    layers = read_zip(tmp_path / "model.zip", normalization=None).policy.net.layers
    assert [layer.weight.shape for layer in layers] == [(4, 4), (8, 4), (2, 8)]
    assert [layer.activation for layer in layers] == [Activation.TANH, Activation.TANH, Activation.NONE]


def test_contradictions_about_the_algorithm_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(forge())
    with pytest.raises(PolicyError, match="a zip of ppo, though the caller says 'a2c'"):
        read_zip(tmp_path / "model.zip", "a2c", None)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "args.yml").write_text("algo: dqn")
    with pytest.raises(PolicyError, match=r"a zip of ppo, though args\.yml says 'dqn'"):
        read_zip(tmp_path / "model.zip", "ppo", None)
    (tmp_path / "model" / "args.yml").write_text("{env: CartPole-v1, env_kwargs: {gravity: 1}}")
    with pytest.raises(PolicyError, match="env_kwargs changes the environment"):
        read_zip(tmp_path / "model.zip", "ppo", None)
    (tmp_path / "model" / "args.yml").unlink()
    with pytest.raises(PolicyError, match="normalization='guess' is neither"):
        read_zip(tmp_path / "model.zip", "ppo", "guess")


def test_an_actor_critic_of_another_kind_is_refused(tmp_path: Path) -> None:
    """TRPO has the same policy class, no clip_range, and a target_kl, which A2C has not."""

    def forget(members: dict[str, bytes]) -> None:
        settings = json.loads(members["data"])
        del settings["clip_range"]
        members["data"] = json.dumps(settings).encode()

    (tmp_path / "model.zip").write_bytes(forge(forget))
    with pytest.raises(PolicyError, match="none of a2c, ppo, trpo has"):
        read_zip(tmp_path / "model.zip", normalization=None)


def test_given_statistics_win(tmp_path: Path) -> None:
    (tmp_path / "model.zip").write_bytes(forge())
    given = Normalization(np.arange(4.0), np.ones(4))
    assert read_zip(tmp_path / "model.zip", normalization=given).policy.transform.normalization is given
    with pytest.raises(PolicyError, match="statistics of shape"):
        read_zip(tmp_path / "model.zip", normalization=Normalization(np.zeros(3), np.ones(3)))


@needs_zoo
@pytest.mark.parametrize(
    "path", choose(AGENTS[:: len(AGENTS) // 2 or 1], AGENTS), ids=lambda path: f"{path.parents[1].name}-{path.stem}"
)
def test_a_zoo_agent_plays_as_published(path: Path, require) -> None:
    """Within three standard errors of the difference; 1% where no spread was published."""
    agent = read_agent(path)
    assert (agent.algo, agent.environment) == (path.parents[1].name, path.stem)
    assert agent.time_feature == ("Bullet" in path.stem or (agent.algo, path.stem) == ("ppo", "Walker2d-v3"))
    assert (agent.policy.transform.normalization is not None) == (path.with_suffix("") / "vecnormalize.pkl").exists()
    extras = {"Bullet": "bullet", "-v3": "mujoco", "LunarLander": "box2d", "Bipedal": "box2d"}
    for word, extra in extras.items():
        if word in path.stem and not (word == "-v3" and "Bipedal" in path.stem):
            require(extra)
    mean, spread, count = PUBLISHED[agent.algo, path.stem]
    returns = roll_out(agent.policy, find_home(agent), range(TEST_SEEDS, TEST_SEEDS + count)).returns
    if spread is None:
        assert returns.mean() == pytest.approx(mean, rel=0.01)
    else:
        error = np.sqrt((spread**2 + returns.var(ddof=1)) / count)
        assert abs(returns.mean() - mean) <= 3 * error


@needs_zoo
def test_zoo_agents_act_as_stable_baselines_says() -> None:
    """One float32 step of a tanh apart at most."""
    run = run_python("-m", "tests.support.zoo_predictions", *AGENTS, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    differences = json.loads(run.stdout)
    assert len(differences) == len(AGENTS)
    assert max(differences.values()) <= 2.0**-22


def test_an_agent_of_another_environment_has_no_home(tmp_path: Path) -> None:
    for name, error, said in (
        ("Acrobot-v1", PolicyError, r"\(4,\) observations cannot play Acrobot-v1"),
        ("Nowhere-v0", SpecError, "unknown environment 'Nowhere-v0'"),
        ("model", SpecError, "names no environment"),
    ):
        (tmp_path / f"{name}.zip").write_bytes(forge())
        with pytest.raises(error, match=said):
            open_task(PolicySource(tmp_path / f"{name}.zip"))


def test_bounds_of_a_living_environment(tmp_path: Path) -> None:
    model = make_agent("ppo", "MountainCarContinuous-v0")
    model.save(tmp_path / "MountainCarContinuous-v0.zip")
    unread = forge_entry(tmp_path / "MountainCarContinuous-v0.zip", "action_space", low="[-0.99999999]")
    (tmp_path / "MountainCarContinuous-v0.zip").write_bytes(unread)
    agent = read_agent(tmp_path / "MountainCarContinuous-v0.zip", normalization=None)
    check_same(agent.policy, extract(model))
    assert find_home(agent).slug == "mountaincarcontinuous"
    (tmp_path / "Pendulum-v1.zip").write_bytes(unread)
    with pytest.raises(PolicyError, match=r"\(2,\) observations cannot play Pendulum-v1"):
        find_home(read_agent(tmp_path / "Pendulum-v1.zip", normalization=None))
