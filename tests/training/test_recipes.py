"""Recipes: what the TOML files hold, and what changes a recipe's hash."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.base_class import BaseAlgorithm

from quarl_bench.environments.registry import find_environment, make_environment
from quarl_bench.errors import MissingExtra, SpecError
from quarl_bench.evaluation.protocol import TEST_SEEDS
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.cells import environment_for
from quarl_bench.spec import Case, PolicySpec
from quarl_bench.training import recipes
from quarl_bench.training.recipes import (
    ALGORITHMS,
    Published,
    Recipe,
    _read_recipes,
    find_recipe,
    name_reference,
    schedule,
)
from quarl_bench.training.sb3 import checkpoints
from quarl_bench.training.sb3 import run as rl_run
from quarl_bench.training.sb3.models import NOISE, load_class
from quarl_bench.training.schemes import train_policy
from tests.support.sizes import exhaustive

KNOWN = [(algo, environment) for algo in ALGORITHMS for environment in _read_recipes(algo)]
RECIPE = Recipe("ppo", "cartpole", "a page", 1000, 8, {"gamma": 0.9, "n_steps": 32})


def test_there_are_recipes() -> None:
    assert ("ppo", "cartpole") in KNOWN
    assert all(issubclass(load_class(name), BaseAlgorithm) for name in ALGORITHMS if name != "recurrentppo")


def test_a_class_of_another_library_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    monkeypatch.delitem(sys.modules, "sb3_contrib.ppo_recurrent.ppo_recurrent", raising=False)
    monkeypatch.delitem(sys.modules, "sb3_contrib.ppo_recurrent", raising=False)
    with pytest.raises(MissingExtra, match=r"training recurrentppo needs an extra: .*contrib"):
        load_class("recurrentppo")


@pytest.mark.parametrize("algo, environment", KNOWN)
def test_every_recipe_reads(algo: str, environment: str) -> None:
    environment, _, origin = environment.partition("-")
    recipe = find_recipe(algo, environment, origin)
    assert (recipe.algo, recipe.environment) == (algo, environment)
    assert recipe.timesteps > 0
    assert recipe.environments > 0
    assert recipe.source
    assert find_environment(environment).id
    assert recipe.published is None or (recipe.published.source and (recipe.published.sd or 0) >= 0)
    assert recipe.noise is None or (recipe.noise[0] in NOISE and recipe.noise[1] > 0)


def test_unknown_recipes_name_the_known_ones() -> None:
    with pytest.raises(
        SpecError,
        match="unknown algorithm 'pp0'; did you mean 'ppo'\\? known are a2c, ddpg, dqn, ppo, recurrentppo, sac, td3",
    ):
        find_recipe("pp0", "cartpole")
    with pytest.raises(SpecError, match=r"no ppo recipe for environment 'pong5'; known are .*cartpole"):
        find_recipe("ppo", "pong5")


@pytest.mark.parametrize("name", ["../ppo", "", "ppo.toml", "PPO"])
def test_no_name_reaches_the_file_system(name: str) -> None:
    with pytest.raises(SpecError, match="unknown algorithm"):
        find_recipe(name, "cartpole")


@pytest.mark.parametrize(
    "change",
    [
        {"algo": "a2c"},
        {"environment": "lunarlander"},
        {"timesteps": 1001},
        {"environments": 1},
        {"policy": "CnnPolicy"},
        {"normalize": True},
        {"time_feature": True},
        {"noise": ("ou", 0.5)},
        {"hyperparameters": {"gamma": 0.9, "n_steps": 33}},
        {"hyperparameters": {"gamma": 0.9}},
    ],
    ids=str,
)
def test_the_hash_covers_what_changes_the_policy(change: dict[str, object]) -> None:
    assert replace(RECIPE, **change).sha256 != RECIPE.sha256


def test_the_hash_ignores_words_and_the_order_of_keys() -> None:
    other = replace(RECIPE, source="another page", hyperparameters={"n_steps": 32, "gamma": 0.9})
    assert other.sha256 == RECIPE.sha256


def test_hashes_of_policies_that_are_trained_already_stay() -> None:
    """What a recipe gained later is not in the hash of one that does without it."""
    assert RECIPE.sha256 == "92ed940cc2fafe32b0a947bb656dd6139b47629bc42fa0f8ab484c48387ac84c"


@pytest.mark.parametrize(
    "table, message",
    [
        (
            {"normalise": True},
            r"\[cartpole\]: unknown key 'normalise'; known are source, timesteps, environments, .*noise",
        ),
        ({"algo": "dqn"}, r"\[cartpole\]: unknown key 'algo'"),
        ({"scheme": "qat8"}, r"\[cartpole\]: unknown key 'scheme'"),
        ({"noise": {"kind": "ou", "sigma": 1}}, r"\[cartpole\], noise: unknown key 'sigma'; known are kind, sd"),
        ({"noise": {"kind": "ou"}}, r"\[cartpole\], noise: the key 'sd' is missing"),
        ({"noise": "ou"}, r"\[cartpole\], noise: 'ou' is not a table; its keys are kind, sd"),
        ({"published": {"mean": 1.0, "source": "a table", "n": 5}}, r"\[cartpole\], published: unknown key 'n'"),
        ({"published": {"mean": 1.0}}, r"\[cartpole\], published: the key 'source' is missing"),
        ({"source": None}, r"\[cartpole\]: the key 'source' is missing"),
        ({"like": "pong"}, r"\[cartpole\]: there is no table 'pong' to be like"),
    ],
    ids=str,
)
def test_a_wrong_table_is_named_with_its_key(
    table: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"source": "a page", "timesteps": 1000, "environments": 8} | table
    entry = {key: value for key, value in entry.items() if value is not None}
    monkeypatch.setattr(recipes, "_read_recipes", lambda _: {"cartpole": entry})
    with pytest.raises(SpecError, match=r"^recipes/ppo\.toml, table " + message):
        find_recipe("ppo", "cartpole")


def test_a_table_like_another_takes_what_it_does_not_say() -> None:
    """But not the score, which is another task's."""
    like, model = find_recipe("ddpg", "hopperbullet"), find_recipe("ddpg", "halfcheetahbullet")
    assert like.hyperparameters == model.hyperparameters | {
        "train_freq": 64,
        "gradient_steps": 64,
        "batch_size": 256,
        "learning_rate": 7e-4,
    }
    assert (like.timesteps, like.noise, like.time_feature) == (1_000_000, ("normal", 0.1), True)
    assert like.published == Published(1157.065, "rl-baselines3-zoo benchmark.md, ddpg HopperBulletEnv-v0", 448.695)


@pytest.mark.parametrize("algo", ["a2c", "ddpg", "ppo"])
@pytest.mark.parametrize("robot", ["halfcheetah", "walker2d", "hopper", "ant"])
def test_bullet_agents_see_the_remaining_time(algo: str, robot: str) -> None:
    assert find_recipe(algo, f"{robot}bullet").time_feature


OFF_POLICY = {"learning_starts": 450, "buffer_size": 500}


# As the recipe says, except that learning begins early and ends soon.
@pytest.mark.parametrize(
    "algo, slug, extra, changes",
    [
        ("a2c", "hopperbullet", "bullet", {}),
        pytest.param("ppo", "antbullet", "bullet", {"n_steps": 64, "n_epochs": 1}, marks=exhaustive),
        pytest.param("ddpg", "walker2dbullet", "bullet", OFF_POLICY, marks=exhaustive),
        ("sac", "hopperv4", "mujoco", OFF_POLICY),
    ],
)
def test_a_recipe_trains(
    algo: str, slug: str, extra: str, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, require
) -> None:
    """Its policy is evaluated with the observations it was trained on, and its manifest says which."""
    require(extra)
    for name in ("VALIDATION_EPISODES", "SCORE_EPISODES"):
        monkeypatch.setattr(rl_run, name, 2)
    monkeypatch.setattr(checkpoints, "CURVE_POINTS", 2)
    recipe = find_recipe(algo, slug)
    hyperparameters = recipe.hyperparameters | changes
    recipe = replace(recipe, timesteps=512, hyperparameters=hyperparameters, environments=min(recipe.environments, 2))
    stored = train_policy(PolicySpec(algo, slug, 0), recipe, tmp_path / "policy", tmp_path / "unfinished")
    environment = environment_for(stored, Case(algo, slug, "fp32"))
    assert environment.time_feature == stored.metadata["time_feature"] == recipe.time_feature
    bare, _ = make_environment(environment)
    assert stored.policy.transform.shape == bare.observation_space.shape
    assert (stored.policy.transform.normalization is not None) == recipe.normalize
    bare.close()
    returns = roll_out(stored.policy, environment, range(TEST_SEEDS, TEST_SEEDS + 2)).returns
    assert stored.metadata["return"]["mean"] == returns.mean()


@pytest.mark.parametrize("value", [3, 0.5, "linear", None, (1, 2)], ids=str)
def test_plain_values_are_themselves(value: object) -> None:
    assert schedule(value) is value


def test_an_array_becomes_a_tuple() -> None:
    assert schedule([1, "episode"]) == (1, "episode")


def test_a_linear_schedule_falls_to_zero() -> None:
    falling = schedule("lin_0.002")
    assert [falling(progress) for progress in (1.0, 0.5, 0.0)] == [0.002, 0.001, 0.0]


def test_a_quantizer_may_be_trained_in_another_way() -> None:
    plain, aware = find_recipe("ppo", "pong"), find_recipe("ppo", "pong", scheme="qat8")
    assert (plain.precision, plain.timesteps) == ("bf16", 2_000_000)
    assert (aware.precision, aware.timesteps, aware.quant_delay) == ("fp32", 1_000_000, 500_000)
    assert aware.hyperparameters == plain.hyperparameters
    shorter = find_recipe("ppo", "pong", scheme="qat8", timesteps=10_000, quant_delay=4_000)
    assert (shorter.precision, shorter.timesteps, shorter.quant_delay) == ("fp32", 10_000, 4_000)
    assert find_recipe("ppo", "pong", scheme="qat8", timesteps=10_000).quant_delay == 5_000
    other = find_recipe("ppo", "breakout", scheme="qat8")  # which is like Pong's, and has no other way
    assert other.precision == "bf16"


@pytest.mark.parametrize(
    ("algo", "environment", "origin", "reference"),
    [
        ("ppo", "pong", "", "aware"),  # for half of the steps
        ("a2c", "pong", "", ""),  # in another precision alone
        ("ppo", "cartpole", "", ""),
        ("ppo", "pong", "zoo", "zoo"),
        ("ppo", "halfcheetahv4", "", ""),  # without a recipe
    ],
)
def test_what_trains_for_other_steps_with_a_quantizer_has_another_reference(
    algo: str, environment: str, origin: str, reference: str
) -> None:
    assert name_reference(algo, environment, origin) == reference


def test_the_reference_is_trained_as_with_a_quantizer() -> None:
    plain, aware = find_recipe("ppo", "pong", "aware"), find_recipe("ppo", "pong", scheme="qat8")
    assert plain == replace(aware, scheme="", quant_delay=0)
