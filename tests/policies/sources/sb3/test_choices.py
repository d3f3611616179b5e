"""Actions of several choices and bits: what stable-baselines3 and sb3-contrib predict, with masks and without."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO

from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.acting import Sampled
from quarl_bench.evaluation.noise import GumbelNoise
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.masks import add_masks
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.sources.sb3.model import extract, name_algorithm
from quarl_bench.policies.sources.sb3.zip import read_zip
from tests.support.choices import ACTIONS, ByMethod, Chooser, count_entries, draw_masks

OPTIONS: dict[str, Any] = {"n_steps": 64, "device": "cpu", "seed": 3, "policy_kwargs": {"net_arch": [16]}}
STATES = np.random.default_rng(0).uniform(-2, 2, (500, 4)).astype(np.float32)
DRAWS = 4_000


def make_model(name: str, made: Any = PPO) -> Any:
    """Trained for a moment, so that biases differ from 0."""
    env = (ByMethod if made not in (PPO, A2C) else Chooser)(ACTIONS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made("MlpPolicy", env, **OPTIONS | ({} if made is A2C else {"batch_size": 64})).learn(256)


def read_both(model: Any, folder: Path) -> tuple[PolicyNet, PolicyNet]:
    model.save(folder / "model.zip")
    return extract(model), read_zip(folder / "model.zip").policy


def check_shares(policy: PolicyNet, state: Any, wanted: list[Any]) -> None:
    """A policy's draws in one state have the library's probabilities, part by part, within 5 SDs."""
    states = np.repeat(state, DRAWS, axis=0)
    drawn = Sampled(GumbelNoise(range(DRAWS), sum(policy.head.list_choices(policy.net.outputs))))
    actions = drawn.choose(policy, states, drawn.draw(np.arange(DRAWS), states)).reshape(DRAWS, -1)
    for column, probabilities in zip(actions.T, wanted, strict=True):
        found = np.bincount(column, minlength=len(probabilities)) / DRAWS
        assert (found[probabilities < 1e-6] == 0).all()
        assert (np.abs(found - probabilities) < 5 * np.sqrt(probabilities * (1 - probabilities) / DRAWS) + 1e-9).all()


@pytest.mark.parametrize("made", [PPO, A2C])
@pytest.mark.parametrize("name", ["indices", "bits"])
def test_the_library_predicts_the_same(name: str, made: Any, tmp_path: Path) -> None:
    model = make_model(name, made)
    expected = model.predict(STATES, deterministic=True)[0]
    assert len(np.unique(expected, axis=0)) > 2
    for policy in read_both(model, tmp_path):
        assert policy.head.kind is (HeadKind.BITS if name == "bits" else HeadKind.PARTS)
        assert not policy.head.masked
        np.testing.assert_array_equal(policy.act(STATES), expected)


@pytest.mark.parametrize("name", ["indices", "bits"])
def test_draws_have_the_library_s_probabilities(name: str) -> None:
    model = make_model(name)
    with torch.no_grad():
        found = model.policy.get_distribution(torch.from_numpy(STATES[:1])).distribution
    if name == "bits":
        wanted = [np.array([1 - p, p]) for p in found.probs[0].numpy()]
    else:
        wanted = [one.probs[0].numpy() for one in found]
    check_shares(extract(model), STATES[:1], wanted)


@pytest.mark.parametrize("name", ACTIONS)
def test_masked_actions_are_those_of_sb3_contrib(name: str, tmp_path: Path) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="needs the extra contrib")
    model = make_model(name, contrib.MaskablePPO)
    assert name_algorithm(model) == "maskableppo"
    masks = draw_masks(np.random.default_rng(1), len(STATES), count_entries(ACTIONS[name]))
    expected = model.predict(STATES, deterministic=True, action_masks=masks)[0]
    free = model.predict(STATES, deterministic=True)[0]
    assert (expected != free).any()
    with torch.no_grad():
        found = model.policy.get_distribution(torch.from_numpy(STATES[:1]), masks[:1])
    ones = [found.distribution] if name == "index" else found.distributions
    wanted = [one.probs.reshape(-1).numpy() for one in ones]
    for policy in read_both(model, tmp_path):
        assert policy.head.masked
        np.testing.assert_array_equal(policy.act(STATES), free)
        np.testing.assert_array_equal(policy.act(add_masks(STATES, masks)), expected)
        check_shares(policy, add_masks(STATES[:1], masks[:1]), wanted)
        with pytest.raises(PolicyError, match="one entry each"):
            policy.act(add_masks(STATES, masks[:, 1:]))
