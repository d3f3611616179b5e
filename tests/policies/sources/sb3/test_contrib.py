"""RecurrentPPO of sb3-contrib, live and as a zip: what it predicts over whole episodes, memory reset between."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.calibration import quantize_calibrated
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.sb3.model import extract, name_algorithm
from quarl_bench.policies.sources.sb3.zip import read_zip
from quarl_bench.quantization.scheme import Scheme

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
