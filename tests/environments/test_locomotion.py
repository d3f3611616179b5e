"""MuJoCo's walkers on a batch of episodes are Gymnasium's own, in every bit."""

import contextlib

import gymnasium
import numpy as np
import pytest

from quarl_bench.environments.locomotion import WALKERS, find_walker
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.evaluation.batches.episodes import SteppedEpisodes, start_episodes
from quarl_bench.evaluation.batches.walks import WalkEpisodes
from tests.support.sizes import choose

pytestmark = pytest.mark.needs("mujoco")

EPISODES, STEPS = 8, choose(1000, 10_000)
NAMES = ("halfcheetahv4", "hopperv4", "walker2dv4", "antv4")


def play(kind, strength, seed):
    """What the episodes of `kind` show under random actions, all steps and all seeds."""
    draws, shown = np.random.default_rng(seed), [kind.reset()]
    active = np.arange(EPISODES)
    width = kind_width(kind)
    while len(active):
        actions = draws.uniform(-strength, strength, (len(active), width)).astype(np.float32)
        observations, rewards, done = kind.step(active, actions)
        shown += [observations, rewards, done]
        active = active[~done]
    kind.close()
    return shown


def kind_width(episodes):
    """How many joints are driven."""
    scalar = episodes._scalar if isinstance(episodes, WalkEpisodes) else episodes._environments[0]
    return scalar.action_space.shape[0]


@pytest.mark.parametrize("name", NAMES)
def test_episodes_are_gymnasiums_resets_rewards_and_ends_too(name):
    """Gentle actions, in which walkers stand for long, and wild ones, in which they fall."""
    environment, steps, begin = find_environment(name), 0, 10_000
    strengths = (1.0, 0.2)
    while steps < STEPS:
        seeds = range(begin, begin + EPISODES)
        strength = strengths[begin // EPISODES % 2]
        theirs = SteppedEpisodes(environment, seeds)
        theirs._during_steps = contextlib.nullcontext  # as Gymnasium steps, MuJoCo's looks at the clock included
        found, wanted = (play(kind, strength, begin) for kind in (start_episodes(environment, seeds), theirs))
        assert len(found) == len(wanted)
        for ours, theirs in zip(found, wanted, strict=True):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert ours.tobytes() == theirs.tobytes()
        steps, begin = steps + sum(len(done) for done in found[3::3]), begin + EPISODES


def test_every_walker_is_one_that_gymnasium_registers():
    found = {gymnasium.spec(find_environment(name).id).entry_point for name in NAMES}
    assert found == WALKERS.keys()


def test_what_is_made_otherwise_is_asked_step_by_step(monkeypatch):
    spec = gymnasium.spec("Hopper-v4")
    environment = find_environment("hopperv4")
    assert isinstance(start_episodes(environment, [1]), WalkEpisodes)
    for changes in ({"kwargs": {"healthy_reward": 2.0}}, {"entry_point": "gymnasium.envs.mujoco.hopper_v5:HopperEnv"}):
        with monkeypatch.context() as patch:
            other = gymnasium.envs.registration.EnvSpec(
                "Hopper-v4", **{"entry_point": spec.entry_point, "max_episode_steps": 1000} | changes
            )
            patch.setitem(gymnasium.registry, "Hopper-v4", other)
            assert find_walker("Hopper-v4") is None
            episodes = start_episodes(environment, [1])
            assert type(episodes) is SteppedEpisodes
            episodes.close()
    assert find_walker("Humanoid-v4") is None
    assert find_walker("no-such-task") is None
    timed = Environment("hopperv4", "Hopper-v4", extra="mujoco", time_feature=True)
    assert type(start_episodes(timed, [1])) is SteppedEpisodes
