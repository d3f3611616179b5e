"""Agents of sb3-contrib, live and as zips: what they predict, a recurrent one over whole episodes."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from quarl_bench.environments.encoding import encode
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.calibration import quantize_calibrated
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.sb3.model import extract, name_algorithm
from quarl_bench.policies.sources.sb3.zip import read_zip
from quarl_bench.policies.storage.fp32 import hash_policy
from quarl_bench.quantization.scheme import Scheme
from tests.support.choices import ACTIONS, Chooser

contrib = pytest.importorskip("sb3_contrib", reason="needs the extra contrib")
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"lstm_hidden_size": 8, "net_arch": [8]},
    "deep": {"lstm_hidden_size": 6, "n_lstm_layers": 2, "net_arch": {"pi": [5, 4], "vf": [3]}},
    "shared": {"lstm_hidden_size": 6, "shared_lstm": True, "enable_critic_lstm": False, "net_arch": []},
}


class Positions(gymnasium.ObservationWrapper):
    """CartPole without velocities, which only a memory finds out."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self.observation_space = gymnasium.spaces.Box(-5, 5, (2,), np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[[0, 2]]


def train(kind: str) -> Any:
    options = {"n_steps": 128, "batch_size": 128, "n_epochs": 2, "seed": 1, "device": "cpu"}
    model = contrib.RecurrentPPO("MlpLstmPolicy", Positions(), policy_kwargs=KINDS[kind], **options)
    return model.learn(256)


class Seen(gymnasium.ObservationWrapper):
    """The same with an image of where the cart is."""

    def __init__(self) -> None:
        super().__init__(Positions())
        camera = gymnasium.spaces.Box(0, 255, (36, 36, 1), np.uint8)
        self.observation_space = gymnasium.spaces.Dict({"camera": camera, "positions": self.env.observation_space})

    def observation(self, observation: Any) -> Any:
        camera = np.zeros((36, 36, 1), np.uint8)
        camera[:, : int(np.clip(18 + 40 * observation[0], 0, 36))] = 200
        return {"camera": camera, "positions": observation}


def test_a_memory_that_sees_an_image_among_vectors(tmp_path: Path) -> None:
    kinds = KINDS["plain"] | {"features_extractor_kwargs": {"cnn_output_dim": 8}}
    options = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "seed": 1, "device": "cpu"}
    model = contrib.RecurrentPPO("MultiInputLstmPolicy", Seen(), policy_kwargs=kinds, **options).learn(64)
    model.save(tmp_path / "model.zip")
    stored, own, flat = read_zip(tmp_path / "model.zip").policy, Seen(), encode(Seen())
    assert hash_policy(stored) == hash_policy(extract(model))
    (seen, _), (row, _) = own.reset(seed=5), flat.reset(seed=5)
    state, other, start = None, stored.initial_state(1), np.ones(1, np.bool_)
    for _ in range(8):
        batch = {name: value[None] for name, value in seen.items()}
        expected, state = model.predict(batch, state, start, deterministic=True)
        action, other = stored.act(row[None], other)
        assert action[0] == expected[0]
        assert np.abs(state[0][-1] - other[0]).max() < 1e-5
        (seen, *_), (row, *_), start = own.step(int(action[0])), flat.step(int(action[0])), np.zeros(1, np.bool_)


def check_equal(model: Any, policy: PolicyNet) -> None:
    """Two episodes, of which the second begins anew."""
    env, steps = Positions(), 0
    for seed in (0, 1):
        observation, _ = env.reset(seed=seed)
        state, other, start, done = None, policy.initial_state(1), np.ones(1, np.bool_), False
        while not done:
            expected, state = model.predict(observation[None], state, start, deterministic=True)
            action, other = policy.act(observation[None], other)
            assert action[0] == expected[0]
            hidden = other[::2][-1]  # of the last cell
            assert np.abs(state[0][-1] - hidden).max() < 1e-5
            observation, _, terminated, truncated, _ = env.step(int(action[0]))
            start, done, steps = np.zeros(1, np.bool_), terminated or truncated, steps + 1
    assert steps > 15


@pytest.mark.parametrize("kind", KINDS)
def test_it_predicts_the_same(kind: str, tmp_path: Path) -> None:
    model = train(kind)
    model.save(tmp_path / "model.zip")
    assert name_algorithm(model) == "recurrentppo"
    for policy in (extract(model), read_zip(tmp_path / "model.zip").policy):
        assert len(policy.net.cells) == KINDS[kind].get("n_lstm_layers", 1)
        check_equal(model, policy)


def test_it_plays_as_integers_and_weights_of_others_are_refused(tmp_path: Path) -> None:
    model = train("plain")
    gymnasium.register("Positions-v0", entry_point=Positions, max_episode_steps=100)
    task = Environment("positions", "Positions-v0")
    policy = extract(model)
    integers = quantize_calibrated(policy, Scheme.parse("int8"), task)
    returns = roll_out(integers, task, range(3), reference=policy)
    assert returns.agreement is not None
    assert returns.agreement > 0.8
    model.policy.lstm_actor = torch.nn.LSTM(2, 8, proj_size=4)
    with pytest.raises(PolicyError, match="no projection"):
        extract(model)


@pytest.mark.parametrize("name", ["indices", "bits"])
def test_a_memory_chooses_several_things_at_once(name: str) -> None:
    options = {"n_steps": 64, "batch_size": 64, "seed": 0, "device": "cpu", "policy_kwargs": KINDS["plain"]}
    model = contrib.RecurrentPPO("MlpLstmPolicy", Chooser(ACTIONS[name]), **options)
    with torch.no_grad():
        model.policy.action_net.weight.mul_(100)  # an untrained policy's logits are all but equal
    policy, alike = extract(model), 0
    state, other, start = None, policy.initial_state(1), np.ones(1, np.bool_)
    for row in np.random.default_rng(0).uniform(-2, 2, (300, 1, 4)).astype(np.float32):
        expected, state = model.predict(row, state, start, deterministic=True)
        action, other = policy.act(row, other)
        alike += bool((action == expected).all())
        start = np.zeros(1, np.bool_)
    assert alike >= 298  # sums of another order


AGENTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {  # class, policy, environment, options
    "ars": ("ARS", "MlpPolicy", "Pendulum-v1", {"n_delta": 2}),
    "ars-linear": ("ARS", "LinearPolicy", "Pendulum-v1", {"n_delta": 2}),
    "ars-discrete": ("ARS", "MlpPolicy", "CartPole-v1", {"n_delta": 2}),
    "crossq": ("CrossQ", "MlpPolicy", "Pendulum-v1", {"learning_starts": 20}),
    "crossq-plain": ("CrossQ", "MlpPolicy", "Pendulum-v1", {"policy_kwargs": {"batch_norm": False}}),
    "crossq-epsilon": ("CrossQ", "MlpPolicy", "Pendulum-v1", {"policy_kwargs": {"batch_norm_eps": 0.1}}),
    "qrdqn": ("QRDQN", "MlpPolicy", "CartPole-v1", {"policy_kwargs": {"n_quantiles": 7}}),
    "tqc": ("TQC", "MlpPolicy", "Pendulum-v1", {"learning_starts": 20}),
    "tqc-sde": ("TQC", "MlpPolicy", "Pendulum-v1", {"use_sde": True}),
    "trpo": ("TRPO", "MlpPolicy", "CartPole-v1", {"n_steps": 64, "batch_size": 64}),
}


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_predicts_the_same(name: str, tmp_path: Path) -> None:
    made, policy_class, environment, options = AGENTS[name]
    options = {"policy_kwargs": {"net_arch": [16, 12]} if policy_class == "MlpPolicy" else {}} | options
    model = getattr(contrib, made)(policy_class, environment, seed=1, device="cpu", **options)
    model.learn(60)
    model.save(tmp_path / "model.zip")
    assert name_algorithm(model) == name.partition("-")[0]
    space = model.observation_space
    observations = np.random.default_rng(0).normal(0, 1, (10_000, *space.shape)).astype(np.float32)
    expected = model.predict(observations, deterministic=True)[0]
    box = isinstance(model.action_space, gymnasium.spaces.Box)
    bounds = (model.action_space.low, model.action_space.high) if box else (np.zeros(1), np.ones(1))
    for policy in (extract(model), read_zip(tmp_path / "model.zip", find_bounds=lambda _: bounds).policy):
        actions = policy.act(observations)
        if policy.head.discrete:
            assert (actions == expected).mean() > 0.999  # the mean of quantiles is summed in another order
        else:
            assert np.abs(actions - expected).max() < 1e-5 * np.abs(bounds[1]).max()


def test_what_is_no_policy_of_theirs_is_refused() -> None:
    model = contrib.QRDQN("MlpPolicy", "CartPole-v1")
    del model.policy.quantile_net.n_quantiles
    with pytest.raises(PolicyError, match="has no n_quantiles; only sb3-contrib's own policies are known"):
        extract(model)
