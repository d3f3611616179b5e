"""Recipes: what the TOML files hold, and what changes a recipe's hash."""

from dataclasses import replace

import pytest

from quarl_bench.errors import SpecError
from quarl_bench.rl.environments import find_environment
from quarl_bench.rl.recipes import ALGORITHMS, Recipe, _read_recipes, find_recipe, schedule
from quarl_bench.rl.train import ALGORITHMS as TRAINABLE
from quarl_bench.rl.train import NOISE

KNOWN = [(algo, environment) for algo in ALGORITHMS for environment in _read_recipes(algo)]
RECIPE = Recipe("ppo", "cartpole", "a page", 1000, 8, {"gamma": 0.9, "n_steps": 32})


def test_there_are_recipes() -> None:
    assert ("ppo", "cartpole") in KNOWN
    assert set(ALGORITHMS) == set(TRAINABLE)


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
    with pytest.raises(SpecError, match="unknown algorithm 'pp0'; known are a2c, ddpg, dqn, ppo, sac, td3"):
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


@pytest.mark.parametrize("value", [3, 0.5, "linear", None, (1, 2)], ids=str)
def test_plain_values_are_themselves(value: object) -> None:
    assert schedule(value) is value


def test_an_array_becomes_a_tuple() -> None:
    assert schedule([1, "episode"]) == (1, "episode")


def test_a_linear_schedule_falls_to_zero() -> None:
    falling = schedule("lin_0.002")
    assert [falling(progress) for progress in (1.0, 0.5, 0.0)] == [0.002, 0.001, 0.0]
