"""Flights to one waypoint: PyFlyt's physics, a success as the return, and nothing said."""

import json
import subprocess
import sys

import numpy as np
import pytest

from quarl_bench.environments import drone, flights
from quarl_bench.environments.registry import find_environment, make_environment
from quarl_bench.errors import MissingExtra, PolicyError
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.papers.quarl.navigation import ACTIONS, HIDDEN, OBSERVATION, find_random_policy
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.training.recipes import find_recipe
from quarl_bench.training.sb3.vector import make_vector
from tests.support.places import POLICIES

pytestmark = pytest.mark.needs("navigation")
FLIGHT = find_environment("quadx2")
HOVER = np.array([0, 0, 0, 0.35])
SEED = 5
SPEED, PLACE = slice(7, 10), slice(10, 13)  # of an observation, in metres and seconds


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


def hold(rng, observation):
    """A command that keeps the drone where it is until the flight is cut off."""
    lift = 0.35 + 0.4 * (1 - observation[PLACE][2]) - 0.2 * observation[SPEED][2]
    return np.array([0, 0, 0, lift])


def drift(rng, observation):
    return np.array([0, 0, 0, 0.35]) + 0.05 * rng.standard_normal(4)


def tumble(rng, observation):
    return rng.uniform([-3, -3, -3, -0.5], [3, 3, 3, 1.5])


def fall(rng, observation):
    return np.zeros(4)


def rise(rng, observation):
    return np.array([0, 0, 0, 0.9])


class Trained:
    """A policy that finds the target."""

    def __init__(self):
        self.policy = load_policy(POLICIES / "ppo-quadx2-seed0").policy

    def __call__(self, rng, observation):
        return self.policy.act(observation[None])[0]


@pytest.fixture
def theirs(monkeypatch):
    """Flights by PyFlyt alone, with its own reward."""
    monkeypatch.setattr(flights, "can_fly", lambda _: False)
    bare, _ = make_environment(FLIGHT, shaped=True)
    yield bare
    bare.close()


@pytest.fixture
def ours(theirs, monkeypatch):
    monkeypatch.undo()
    bare, _ = make_environment(FLIGHT, shaped=True)
    yield bare
    bare.close()


@pytest.mark.parametrize(
    "make, end",
    [
        pytest.param(lambda: hold, "limit", id="limit"),
        pytest.param(lambda: drift, None, id="drift"),
        pytest.param(lambda: tumble, None, id="tumble"),
        pytest.param(lambda: fall, "collision", id="crash"),
        pytest.param(lambda: rise, "out_of_bounds", id="away"),
        pytest.param(
            Trained,
            "env_complete",
            id="target",
            marks=pytest.mark.skipif(not POLICIES.is_dir(), reason=f"no baselines in {POLICIES}"),
        ),
    ],
)
def test_a_flight_is_pyflyts_to_the_bit(ours, theirs, make, end):
    """Observations, rewards, ends, what is said of them, and the chance that is left; flight behind flight."""
    pilot, ends = make(), set()
    for seed in range(SEED, SEED + 4):
        rng, steps, ended = np.random.default_rng(seed), 0, False
        (seen, said), (expected, told) = ours.reset(seed=seed), theirs.reset(seed=seed)
        np.testing.assert_array_equal(seen, expected)
        assert said == told
        while not ended:
            action = pilot(rng, seen)
            found, right = ours.step(action), theirs.step(action)
            np.testing.assert_array_equal(found[0], right[0])
            assert found[1:] == right[1:]
            seen, ended, steps = found[0], found[2] or found[3], steps + 1
        assert ours.step(HOVER)[1:4] == theirs.step(HOVER)[1:4]  # nothing moves behind an end
        assert ours.unwrapped.np_random.bit_generator.state == theirs.unwrapped.np_random.bit_generator.state
        ends |= {"limit"} if steps > 300 else {name for name, said in found[4].items() if said}
    assert end is None or end in ends


def test_a_flight_compiles_nothing():
    code = (
        "from quarl_bench.environments.registry import find_environment, make_environment;"
        "bare, _ = make_environment(find_environment('quadx2')); bare.reset(seed=0); bare.step([0, 0, 0, 0.3]);"
        "from PyFlyt.core.abstractions.motors import Motors; from PyFlyt.core.abstractions.pid import PID;"
        "methods = [Motors._jitted_compute_thrust_torque, *PID.class_type.jit_methods.values()];"
        "print([len(method.signatures) for method in methods])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) == {0}


def test_another_pyflyt_flies_by_itself(flight, monkeypatch):
    """Its arithmetic may be another."""
    monkeypatch.setattr(drone, "KNOWN", "0.28.0")
    other, _ = make_environment(FLIGHT)
    expected = fly(other, SEED, 20)[0]
    assert isinstance(other.unwrapped.env.drones[0].state, np.ndarray)  # PyFlyt's own, which only its own step keeps
    np.testing.assert_array_equal(fly(flight, SEED, 20)[0], expected)
    other.close()


def test_a_command_that_is_not_finite_is_refused(flight):
    flight.reset(seed=SEED)
    with pytest.raises(PolicyError, match="not finite"):
        flight.step([0, 0, 0, np.nan])


def test_the_target_ends_a_flight_with_a_return_of_one(flight):
    """Put the target where the drone is."""
    first, _ = flight.reset(seed=SEED)
    flight.unwrapped.waypoints.targets = np.float64([first[PLACE]])
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
