"""CartPole without velocities is CartPole in everything else."""

import gymnasium
import numpy as np

from quarl_bench.environments.classic_control import PLACES
from quarl_bench.environments.hidden_velocities import STEPS
from quarl_bench.environments.registry import find_environment, identify_environment, make_environment

TASK = find_environment("cartpolenovel")


def test_it_is_cartpole_with_zeros_for_velocities() -> None:
    bare, limit = make_environment(TASK)
    cartpole = gymnasium.make("CartPole-v1")
    assert limit == STEPS == cartpole.spec.max_episode_steps == TASK.cap
    assert bare.observation_space == cartpole.observation_space
    for seed in range(5):
        seen, whole = bare.reset(seed=seed)[0], cartpole.reset(seed=seed)[0]
        rng, over = np.random.default_rng(seed), False
        while not over:
            np.testing.assert_array_equal(seen, whole * PLACES)
            assert seen.dtype == whole.dtype
            assert whole[1] != 0 or whole[3] != 0
            action = int(rng.integers(2))
            seen, reward, over, *_ = bare.step(action)
            whole, expected, ended, *_ = cartpole.step(action)
            assert (reward, over) == (expected, ended)


def test_agents_of_the_zoo_play_here() -> None:
    assert identify_environment("CartPoleNoVel-v1") == TASK
