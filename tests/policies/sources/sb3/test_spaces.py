"""Agents of other spaces than vectors and indices: live and as zips they act as stable-baselines3 says."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quarl_bench.environments.encoding import encode
from quarl_bench.errors import PolicyError
from quarl_bench.interface import evaluate
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.policies.sources.sb3.spaces import read_observations
from quarl_bench.policies.sources.sb3.zip import read_zip

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
    vectorized = VecNormalize(DummyVecEnv([lambda: Random(both, INDEX)]))
    model = PPO("MultiInputPolicy", vectorized, n_steps=32, batch_size=32, device="cpu", seed=0).learn(64)
    both.seed(3)
    own = [both.sample() for _ in range(50)]
    flat = np.stack([spaces.flatten(both, one) for one in own])
    batch = vectorized.normalize_obs({key: np.stack([one[key] for one in own]) for key in both.spaces})
    np.testing.assert_array_equal(extract(model).act(flat), model.predict(batch, deterministic=True)[0])
    some = VecNormalize(DummyVecEnv([lambda: Random(both, INDEX)]), norm_obs_keys=["a"])
    with pytest.raises(PolicyError, match="of a part of the observations has no portable form"):
        extract(PPO("MultiInputPolicy", some, n_steps=32, batch_size=32, device="cpu"))


def test_an_image_among_vectors_is_refused() -> None:
    parts = spaces.Dict({"camera": spaces.Box(0, 255, (3, 36, 36), np.uint8), "speed": VECTOR})
    model = PPO("MultiInputPolicy", Random(parts, INDEX), n_steps=32, batch_size=32, device="cpu")
    with pytest.raises(PolicyError, match="of a Dict go through NatureCNN; only vectors are put together"):
        extract(model)


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
