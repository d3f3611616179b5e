"""Environments as people hold them: by name, made, in vectors, in functions, with options."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformReward
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from quarl_bench import evaluate, load_policy
from quarl_bench.checking.subject import open_subject
from quarl_bench.cli import main
from quarl_bench.environments.registry import make_environment
from quarl_bench.errors import PolicyError, SpecError
from quarl_bench.experiments.environment_source import resolve_environment
from tests.support.strategies import make_linear_policy

BALANCER = make_linear_policy(np.outer([-1.0, 1.0], [0.02, 0.2, 1.0, 0.6]))  # 500 steps of CartPole


class Counter(gymnasium.Env):
    """Ends by itself; `last` steps long."""

    observation_space = gymnasium.spaces.Box(-9, 9, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, last=7):
        self.last = last

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 4).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(4, np.float32), 1.0, False, self.steps >= self.last, {}


class Endless(Counter):
    def __init__(self):
        super().__init__(10**9)


class Uncopyable(Counter):
    def __deepcopy__(self, memo):
        raise TypeError("a simulator")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))


def hold_model(**options):
    return PPO("MlpPolicy", gymnasium.make("CartPole-v1", **options), policy_kwargs={"net_arch": [4]}, device="cpu")


PLAIN = {
    "id": lambda: "CartPole-v1",
    "name": lambda: "cartpole",
    "made": lambda: gymnasium.make("CartPole-v1"),
    "rendered": lambda: gymnasium.make("CartPole-v1", render_mode="rgb_array"),
    "vector": lambda: gymnasium.make_vec("CartPole-v1", num_envs=2),
    "model": lambda: hold_model().get_env(),
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_its_id_says_is_that_id(name):
    found = resolve_environment(PLAIN[name]())
    assert (found.id, found.custom) == ("CartPole-v1", False)


OTHERS = {  # and how long an episode is
    "class": (lambda: Counter, {}, 7),
    "class with options": (lambda: Counter, {"last": 5}, 5),
    "function": (lambda: lambda: Counter(4), {}, 4),
    "function with options": (lambda: lambda last: TimeLimit(Counter(last), 3), {"last": 9}, 3),
    "instance": (lambda: Counter(6), {}, 6),
    "instance in a limit": (lambda: TimeLimit(Counter(6), 2), {}, 2),
    "vector": (lambda: gymnasium.vector.SyncVectorEnv([lambda: Counter(3)] * 2), {}, 3),
    "vector of a model": (lambda: DummyVecEnv([lambda: Counter(8)]), {}, 8),
    "made with options": (lambda: gymnasium.make("CartPole-v1", max_episode_steps=20), {}, 20),
    "id with options": (lambda: "cartpole", {"max_episode_steps": 30}, 30),
    "in a wrapper": (lambda: TransformReward(gymnasium.make("CartPole-v1", max_episode_steps=9), abs), {}, 9),
    "of a model": (lambda: hold_model(max_episode_steps=12).get_env(), {}, 12),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_made_like_it(name):
    build, options, length = OTHERS[name]
    found = evaluate(BALANCER, build(), episodes=3, env_kwargs=options)
    assert {*found.lengths[0]} == {length}


def test_two_of_one_name_are_two_environments():
    first, second = (resolve_environment(Counter(last)) for last in (3, 4))
    assert first.id != second.id
    assert evaluate(BALANCER, first.id, episodes=2).mean == 3.0


def test_options_of_an_environment_change_it():
    bare, _ = make_environment(resolve_environment("CartPole-v1", {"sutton_barto_reward": True}))
    assert bare.unwrapped._sutton_barto_reward
    assert resolve_environment("cartpole", {"sutton_barto_reward": True}).cap is None


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (lambda: 3, {}, "3 is no environment; pass a name"),
        (lambda: lambda: 3, {}, "made int, which is no environment"),
        (lambda: Endless, {}, "has no step limit, and an episode goes on after 20,000 steps"),
        (Uncopyable, {}, r"cannot be copied \(TypeError\).*pass a function"),
        (Counter, {"last": 3}, "this one is made; leave them out"),
        (lambda: Counter, {"lats": 3}, r"Counter': making one failed .*; mend it, or what was given to it \(lats\)"),
        (lambda: "cartpole", {"gravitas": 3}, r"'CartPole-v1': making one failed .*given to it \(gravitas\)"),
        (lambda: "pong", {"repeat_action_probability": 0.5}, "no env_kwargs"),
        (lambda: VecFrameStack(DummyVecEnv([Counter]), 2), {}, "VecFrameStack changes what the policy sees"),
        (lambda: "CartPole-v2", {}, "did you mean cartpole"),
    ],
)
def test_what_is_no_environment_is_one_line(build, options, message):
    with pytest.raises(SpecError, match=message) as caught:
        evaluate(BALANCER, build(), episodes=1, env_kwargs=options)
    assert "\n" not in str(caught.value)


def test_statistics_around_an_environment_belong_to_the_policy():
    normalized = VecNormalize(DummyVecEnv([Counter]))
    with pytest.raises(PolicyError, match="its environment normalizes observations, and the policy has no statistics"):
        load_policy(BALANCER, normalized)
    model = PPO("MlpPolicy", normalized, n_steps=8, batch_size=8, policy_kwargs={"net_arch": [4]}, device="cpu")
    subject = open_subject(model, model.get_env())
    assert subject.stored.policy.transform.normalization is not None
    assert subject.environment.custom


def test_options_on_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("worlds.py").write_text(
        "from tests.experiments.test_environment_source import Counter\ndef make(last=3):\n    return Counter(last)\n"
    )
    Path("net.py").write_text("import torch\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    command = ["evaluate", "net:make", "--environment", "worlds:make", "--episodes", "2", "--json"]
    assert main([*command, "--env-kwargs", '{"last": 5}']) == 0
    assert '"mean": 5.0' in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main([*command, "--env-kwargs", "last=5"])
    assert stop.value.code == 2
    assert "'last=5' is no JSON object" in capsys.readouterr().err
