"""Agents of other spaces than vectors and indices: live and as zips they act as stable-baselines3 says."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.torch_layers import CombinedExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quarl_bench.environments.encoding import encode
from quarl_bench.errors import PolicyError
from quarl_bench.interface import evaluate
from quarl_bench.policies.observation import Normalization
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.policies.sources.sb3.spaces import read_observations
from quarl_bench.policies.sources.sb3.vecnormalize import read_statistics
from quarl_bench.policies.sources.sb3.zip import read_zip
from quarl_bench.policies.storage.fp32 import hash_policy

VECTOR, INDEX = spaces.Box(-1, 1, (4,), np.float32), spaces.Discrete(3)
PARTS = spaces.Dict({"b": VECTOR, "a": spaces.Box(-1, 1, (2, 3), np.float32), "c": spaces.Discrete(4)})
SPACES: dict[str, tuple[Any, Any]] = {
    "matrix": (spaces.Box(-1, 1, (3, 4), np.float32), INDEX),
    "index": (spaces.Discrete(5), INDEX),
    "indices": (spaces.MultiDiscrete([3, 4]), INDEX),
    "bits": (spaces.MultiBinary(4), INDEX),
    "dict": (PARTS, INDEX),
    "matrix of actions": (VECTOR, spaces.Box(-1, 1, (2, 2), np.float32)),
}


class Random(gymnasium.Env[Any, Any]):
    """Shows anything of its observation space, and takes only what is in its action space."""

    def __init__(self, observations: Any, actions: Any) -> None:
        self.observation_space, self.action_space, self.step_number = observations, actions, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.step_number = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(np.asarray(action, getattr(action, "dtype", np.int64)))
        self.step_number += 1
        return self.observation_space.sample(), float(np.sum(action)), False, self.step_number >= 20, {}


def make_model(name: str, made: Any = PPO) -> Any:
    policy = "MultiInputPolicy" if isinstance(SPACES[name][0], spaces.Dict) else "MlpPolicy"
    options = {"n_steps": 32, "batch_size": 32} if made is PPO else {}
    return made(policy, Random(*SPACES[name]), device="cpu", seed=0, **options)


@pytest.mark.parametrize("name", SPACES)
def test_actions_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    model = make_model(name)
    model.save(tmp_path / "model.zip")
    for policy in (extract(model), read_zip(tmp_path / "model.zip").policy):
        raw, env = Random(*SPACES[name]), encode(Random(*SPACES[name]))
        raw.observation_space.seed(1)
        shown = [raw.observation_space.sample() for _ in range(20)]
        for one in shown:
            wanted = model.predict(one, deterministic=True)[0]
            flat = one if env.observation_space is raw.observation_space else spaces.flatten(raw.observation_space, one)
            action = policy.act(flat[None])[0]
            np.testing.assert_allclose(env.action(action) if hasattr(env, "action") else action, wanted, atol=1e-5)


def test_they_are_played() -> None:
    for name, own in SPACES.items():
        assert evaluate(make_model(name), Random(*own), episodes=2).lengths == ((20, 20),)
    assert extract(make_model("dict", DQN)).transform.shape == (14,)


def test_actions_that_begin_elsewhere_are_moved_for_others_and_refused_for_the_library() -> None:
    shifted = Random(VECTOR, spaces.Discrete(3, start=1))
    module = torch.nn.Sequential(torch.nn.Linear(4, 3))
    assert evaluate(module, shifted, episodes=2).lengths == ((20, 20),)
    with pytest.raises(PolicyError, match="counts actions from 0 alone"):
        extract(PPO("MlpPolicy", shifted, n_steps=32, batch_size=32, device="cpu"))


def test_statistics_of_all_parts_are_put_together_and_of_some_refused() -> None:
    both = spaces.Dict({"b": VECTOR, "a": spaces.Box(-1, 1, (2,), np.float32)})
    both.seed(0)  # what training sees, too
    vectorized = VecNormalize(DummyVecEnv([lambda: Random(both, INDEX)]))
    model = PPO("MultiInputPolicy", vectorized, n_steps=32, batch_size=32, device="cpu", seed=0).learn(64)
    both.seed(3)
    own = [both.sample() for _ in range(50)]
    flat = np.stack([spaces.flatten(both, one) for one in own])
    batch = vectorized.normalize_obs({key: np.stack([one[key] for one in own]) for key in both.spaces})
    np.testing.assert_array_equal(extract(model).act(flat), model.predict(batch, deterministic=True)[0])
    some = VecNormalize(DummyVecEnv([lambda: Random(both, INDEX)]), norm_obs_keys=["a"])
    with pytest.raises(PolicyError, match="of a part of the observations, without 'b', has no portable form"):
        extract(PPO("MultiInputPolicy", some, n_steps=32, batch_size=32, device="cpu"))


CAMERA = spaces.Box(0, 255, (36, 40, 3), np.uint8)
SEEN = spaces.Dict({"camera": CAMERA, "gear": spaces.Discrete(3), "map": spaces.Box(0, 9, (2, 2)), "speed": VECTOR})


class Shown(Random):
    """Begins with what it is told to show."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return options, super().reset(seed=seed)[1]


def make_seeing(made: Any = PPO, space: Any = SEEN, env: Any = None, **options: Any) -> Any:
    more = {"n_steps": 32, "batch_size": 32} if made is PPO else {"buffer_size": 10}
    env = env or Random(space, VECTOR if made is SAC else INDEX)
    small = {"features_extractor_kwargs": {"cnn_output_dim": 16}, "net_arch": [8]}
    return made("MultiInputPolicy", env, device="cpu", seed=0, policy_kwargs=small | options, **more)


def show(space: Any, count: int) -> tuple[list[Any], Any]:
    """Samples of a space, and the flat observations that a policy has of them here."""
    space.seed(1)
    own, flat = [space.sample() for _ in range(count)], encode(Shown(space, INDEX))
    return own, np.stack([flat.reset(options=one)[0] for one in own])


@pytest.mark.parametrize("made", [PPO, DQN, SAC])
@pytest.mark.parametrize("scaled", [True, False])
def test_images_among_vectors_pass_their_own_layers(made: Any, scaled: bool, tmp_path: Path) -> None:
    model = make_seeing(made, normalize_images=scaled)
    model.save(tmp_path / "model.zip")
    own, flat = show(SEEN, 20)
    wanted = np.stack([model.predict(one, deterministic=True)[0] for one in own])
    live, stored = extract(model), read_zip(tmp_path / "model.zip").policy
    assert hash_policy(live) == hash_policy(stored)
    assert [branch.layers for branch in live.net.branches] == [4, 0, 0, 0]
    assert live.net.branches[0].shape == (3, 36, 40)
    np.testing.assert_allclose(stored.act(flat), wanted, atol=1e-5)
    if made is DQN:
        seen = {name: torch.from_numpy(np.stack([one[name] for one in own])) for name in SEEN.spaces}
        seen["camera"] = seen["camera"].permute(0, 3, 1, 2)
        with torch.no_grad():
            values = model.q_net(seen).numpy()
        np.testing.assert_allclose(live.outputs(flat), values, rtol=1e-4, atol=1e-6 if scaled else 1e-4)


def test_images_whose_channels_stand_first_and_several_of_them(tmp_path: Path) -> None:
    first = spaces.Box(0, 255, (1, 36, 36), np.uint8)
    space = spaces.Dict([("right", first), ("left", first)])  # of a list the order is kept
    model = make_seeing(space=space)
    model.save(tmp_path / "model.zip")
    own, flat = show(space, 20)
    wanted = [model.predict(one, deterministic=True)[0] for one in own]
    for policy in (extract(model), read_zip(tmp_path / "model.zip").policy):
        assert [branch.layers for branch in policy.net.branches] == [4, 4]
        np.testing.assert_array_equal(policy.act(flat), wanted)


def test_what_is_no_image_by_its_space_is_a_vector(tmp_path: Path) -> None:
    space = spaces.Dict({"a": spaces.Box(0, 255, (6, 6), np.uint8), "b": spaces.Box(0, 9, (2, 6, 6), np.uint8)})
    model = make_seeing(space=space)
    model.save(tmp_path / "model.zip")
    own, flat = show(space, 20)
    policy = read_zip(tmp_path / "model.zip").policy
    assert policy.net.branches == ()
    assert policy.transform.normalization is None
    np.testing.assert_array_equal(policy.act(flat), [model.predict(one, deterministic=True)[0] for one in own])


def test_statistics_of_the_vectors_beside_an_image(tmp_path: Path) -> None:
    own, flat = show(SEEN, 20)
    both = VecNormalize(DummyVecEnv([lambda: Random(SEEN, INDEX)]), norm_obs_keys=["map", "speed"])
    model = make_seeing(env=both).learn(64)
    batch = both.normalize_obs({name: np.stack([one[name] for one in own]) for name in SEEN.spaces})
    wanted = model.predict(batch, deterministic=True)[0]
    np.testing.assert_array_equal(extract(model).act(flat), wanted)
    model.save(tmp_path / "model.zip")
    both.save(str(tmp_path / "statistics.pkl"))
    stored = read_zip(tmp_path / "model.zip", normalization=tmp_path / "statistics.pkl").policy
    np.testing.assert_array_equal(stored.act(flat), wanted)
    assert hash_policy(stored) == hash_policy(extract(model))
    with pytest.raises(PolicyError, match="statistics of a Dict, which belong to the zip of its policy"):
        read_statistics(tmp_path / "statistics.pkl")
    some = VecNormalize(DummyVecEnv([lambda: Random(SEEN, INDEX)]), norm_obs_keys=["map"])
    with pytest.raises(PolicyError, match="of a part of the observations, without 'speed', has no portable form"):
        extract(make_seeing(env=some))
    mine = deepcopy(SEEN)  # a VecNormalize makes the image a box of real numbers in the environment's own space
    images = VecNormalize(DummyVecEnv([lambda: Random(mine, INDEX)]), norm_obs_keys=["camera", "map", "speed"])
    seeing = make_seeing(env=images)
    with pytest.raises(PolicyError, match="a VecNormalize of the image 'camera' has no portable form"):
        extract(seeing)
    seeing.save(tmp_path / "seeing.zip")
    images.save(str(tmp_path / "images.pkl"))
    for zip_, file, message in (
        ("seeing.zip", "images.pkl", "statistics of 'camera', which may be an image, have no portable form"),
        ("model.zip", "other.pkl", "statistics of 'a', which is no part of its observations"),
    ):
        other = spaces.Dict({"a": VECTOR})
        VecNormalize(DummyVecEnv([lambda space=other: Random(space, INDEX)])).save(str(tmp_path / "other.pkl"))
        with pytest.raises(PolicyError, match=message):
            read_zip(tmp_path / zip_, normalization=tmp_path / file)


class Sum(CombinedExtractor):
    """Puts its parts together in a way of its own."""

    def forward(self, observations: Any) -> torch.Tensor:
        return super().forward(observations) * 2


def test_what_has_no_form_among_parts_is_refused(tmp_path: Path) -> None:
    own = make_seeing(features_extractor_class=Sum)
    own.save(tmp_path / "own.zip")
    with pytest.raises(PolicyError, match="Sum puts its parts together in a way of its own; use CombinedExtractor"):
        extract(own)
    with pytest.raises(PolicyError, match=r"'features_extractor_class' = .* has no portable form"):
        read_zip(tmp_path / "own.zip")
    model = make_seeing()
    model.save(tmp_path / "model.zip")
    known = Normalization(np.zeros(4331), np.ones(4331))
    with pytest.raises(PolicyError, match="statistics beside an image among the observation's parts; give the model"):
        extract(model, known)
    with pytest.raises(PolicyError, match="statistics of one vector, and its observations have an image among"):
        read_zip(tmp_path / "model.zip", normalization=known)


def test_parts_of_other_modules_are_read_where_a_net_has_them(tmp_path: Path) -> None:
    model = make_seeing()
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 4), torch.nn.Tanh())
    model.policy.features_extractor.extractors["speed"] = layers
    own, flat = show(SEEN, 20)
    policy = extract(model)
    assert [branch.layers for branch in policy.net.branches] == [4, 0, 0, 1]
    np.testing.assert_array_equal(policy.act(flat), [model.predict(one, deterministic=True)[0] for one in own])
    model.save(tmp_path / "own.zip")
    with pytest.raises(PolicyError, match=r"features_extractor.extractors.speed is no NatureCNN"):
        read_zip(tmp_path / "own.zip")
    image = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 4, 4), torch.nn.ReLU(), torch.nn.Flatten())
    model.policy.features_extractor.extractors["camera"] = image
    with pytest.raises(PolicyError, match="layer 0: a branch ends in a Linear layer, not in a convolution"):
        extract(model)
    model.policy.features_extractor.extractors["camera"] = torch.nn.MaxPool2d(2)
    with pytest.raises(PolicyError, match=r"module MaxPool2d.* has no portable form"):
        extract(model)


def test_nested_parts_are_refused() -> None:
    entry = {":type:": "<class 'gymnasium.spaces.dict.Dict'>", "spaces": "{'a': Dict('b': Discrete(2))}"}
    with pytest.raises(PolicyError, match="a part that cannot be read, \"'a': Dict"):
        read_observations(entry, "zip")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"spaces": "{'a': Graph(1)}"}, "cannot be read, \"'a': Graph"),
        ({"spaces": "{'a': Box(0, 255, (3, 999999999, 999999999), uint8)}"}, "larger than any observation"),
        ({"spaces": None}, "no parts that can be read"),
        ({"spaces": "{}"}, "of 0 numbers"),
        ({"spaces": "{'a': MultiDiscrete([ ])}"}, "no counts that can be read"),
    ],
)
def test_what_cannot_be_read_of_a_dict_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        read_observations({":type:": "<class 'gymnasium.spaces.dict.Dict'>", **entry}, "zip")
