"""Flights to one waypoint: PyFlyt's physics, a success as the return, and nothing said."""

import sys

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment, make_environment
from quarl_bench.errors import MissingExtra
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.papers.quarl.navigation import ACTIONS, HIDDEN, OBSERVATION, find_random_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.training.recipes import find_recipe
from quarl_bench.training.sb3.vector import make_vector

pytestmark = pytest.mark.needs("navigation")
FLIGHT = find_environment("quadx2")
HOVER = np.array([0, 0, 0, 0.35])
SEED = 5


@pytest.fixture
def flight():
    bare, limit = make_environment(FLIGHT)
    assert limit == 300
    yield bare
    bare.close()


def fly(environment, seed, steps, thrust=0.35):
    """Observations and rewards of a flight with almost level thrust."""
    rng = np.random.default_rng(0)
    observations, rewards = [environment.reset(seed=seed)[0]], []
    for _ in range(steps):
        action = np.array([0, 0, 0, thrust]) + 0.05 * rng.standard_normal(4)
        observation, reward, terminated, truncated, _ = environment.step(action)
        observations.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            break
    return np.stack(observations), rewards


def test_a_seed_is_a_flight(flight, capfd):
    first, _ = fly(flight, SEED, 40)
    other, _ = fly(flight, SEED + 1, 40)
    again, _ = fly(flight, SEED, 40)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], other[0])
    assert first.dtype == np.float32
    assert first.shape[1:] == flight.observation_space.shape == (OBSERVATION,)
    assert flight.action_space.shape == (ACTIONS,)
    assert capfd.readouterr() == ("", "")  # Bullet and PyFlyt both print


@pytest.mark.parametrize("thrust", [0.0, 0.35, 0.8], ids=["crash", "hover", "away"])
def test_a_world_put_back_is_a_new_one(flight, thrust):
    """To the bit, behind whatever ended the flight before it."""
    for seed in range(SEED, SEED + 3):
        observations, rewards = fly(flight, seed, 300, thrust)
        new, _ = make_environment(FLIGHT)
        expected, expected_rewards = fly(new, seed, 300, thrust)
        new.close()
        np.testing.assert_array_equal(observations, expected)
        assert rewards == expected_rewards


def test_the_target_ends_a_flight_with_a_return_of_one(flight):
    """Put the target where the drone is: PyFlyt itself says that it is reached."""
    flight.reset(seed=SEED)
    base = flight.unwrapped
    base.waypoints.targets = np.array([base.env.state(0)[-1]])
    _, reward, terminated, truncated, _ = flight.step(HOVER)
    assert (reward, terminated, truncated) == (1.0, True, False)


def test_a_crash_is_no_success(flight):
    _, rewards = fly(flight, SEED, 300, thrust=0.0)
    assert len(rewards) < 300
    assert set(rewards) == {0.0}


def test_training_sees_pyflyts_own_reward():
    shaped, _ = make_environment(FLIGHT, shaped=True)
    observations, rewards = fly(shaped, SEED, 300, thrust=0.0)
    shaped.close()
    bare, _ = make_environment(FLIGHT)
    np.testing.assert_array_equal(observations, fly(bare, SEED, 300, thrust=0.0)[0])
    bare.close()
    assert rewards[-1] < -99
    assert len(set(rewards)) > 3
    vector = make_vector(FLIGHT, 2, seed=0)
    vector.reset()
    _, reward, _, _ = vector.step(np.stack([HOVER, HOVER]))
    vector.close()
    assert (reward != 0).all()


def test_episodes_do_not_depend_on_their_neighbours():
    policy = find_random_policy("quadx1")
    seeds = [*range(SEED, SEED + 4)]
    together = roll_out(policy, FLIGHT, seeds, keep_every=1)
    alone = [roll_out(policy, FLIGHT, [seed]) for seed in seeds]
    assert together.lengths.tolist() == [int(rollouts.lengths[0]) for rollouts in alone]
    assert set(together.returns.tolist()) <= {0.0, 1.0}
    uncalibrated = policy.quantize(Scheme.parse("int8uncal"))
    calibrated = policy.quantize(Scheme.parse("int8"), together.observations)
    assert uncalibrated.net.input.scale != calibrated.net.input.scale


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PyFlyt.gym_envs", None)
    with pytest.raises(
        MissingExtra, match=r"environment 'quadx2' needs an extra: pip install 'quarl_bench\[navigation\]'"
    ):
        make_environment(FLIGHT)


@pytest.mark.parametrize("name", ["quadx1", "quadx2", "quadx3"])
def test_recipes_have_the_papers_sizes(name):
    recipe = find_recipe("ppo", name)
    assert tuple(recipe.hyperparameters["policy_kwargs"]["net_arch"]["pi"]) == HIDDEN[name]
    assert recipe.hyperparameters["policy_kwargs"]["activation_fn"] == "relu"
    assert recipe.environments == 8
