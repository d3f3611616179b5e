"""Bullet's robots are those of pybullet_envs_gymnasium, in every bit."""

import gymnasium
import numpy as np
import pytest

from quarl_bench.environments import bullet
from quarl_bench.environments.bullet import MOST, add_up
from quarl_bench.environments.registry import find_environment, make_environment
from tests.support.sizes import choose

STEPS = choose(1000, 10_000)  # with each strength
SLUGS = ("halfcheetahbullet", "walker2dbullet")
SEEDS = (3, 2**31 - 1, 10_000)
LONGEST = 400  # steps of an episode that does not end by itself


@pytest.mark.needs("bullet")
@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.parametrize("strength", [0.2, 1.5])
@pytest.mark.parametrize("slug", SLUGS)
def test_episodes_are_the_librarys_resets_rewards_and_falls_too(slug, strength):
    """Gentle actions, in which walkers stand for long, and wild ones, which motors clip and in which they fall."""
    environment = find_environment(slug)
    ours, _ = make_environment(environment)
    theirs = gymnasium.make(environment.id).unwrapped
    draws, steps, episode = np.random.default_rng(0), 0, 0
    touched, bent, fallen = set(), 0, 0
    while steps < STEPS:
        seed = SEEDS[episode % len(SEEDS)] + episode
        found, wanted = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())
        actions = draws.uniform(-strength, strength, (LONGEST, *ours.action_space.shape)).astype(np.float32)
        for action in actions:
            found, *judged = ours.step(action)
            wanted, *expected = theirs.step(action)
            assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())
            assert judged == expected
            robot = ours.unwrapped.robot
            assert robot.joints_at_limit == theirs.robot.joints_at_limit
            touched |= set(np.flatnonzero(robot.feet_contact))
            bent, fallen, steps = bent + robot.joints_at_limit, fallen + expected[1], steps + 1
            if expected[1]:
                break
        episode += 1
    assert touched  # what can happen did
    assert fallen or slug == "halfcheetahbullet"
    assert bent or strength < 1
    ours.close()
    theirs.close()


@pytest.mark.needs("bullet")
def test_actions_in_double_precision_are_the_librarys():
    environment = find_environment("walker2dbullet")
    ours, _ = make_environment(environment)
    theirs = gymnasium.make(environment.id).unwrapped
    draws = np.random.default_rng(1)
    ours.reset(seed=5)
    theirs.reset(seed=5)
    for _ in range(10):
        action = draws.uniform(-2, 2, 6)
        found, wanted = ours.step(action), theirs.step(action)
        assert found[0].tobytes() == wanted[0].tobytes()
        assert found[1:3] == wanted[1:3]
    ours.close()
    theirs.close()


@pytest.mark.needs("bullet")
def test_a_world_on_a_used_connection_is_new(monkeypatch):
    """Whatever robot was there before, and wherever it left its own things."""
    shown = {}
    for kept in (0, bullet.KEPT):
        monkeypatch.setattr(bullet, "KEPT", kept)
        monkeypatch.setattr(bullet, "_IDLE", [])
        draws = np.random.default_rng(4)
        for turn, slug in enumerate([*SLUGS, "hopperbullet", "antbullet"] * choose(2, 10)):
            ours, _ = make_environment(find_environment(slug))
            for seed in range(1 + turn % 2):
                rows = [ours.reset(seed=seed)[0].tobytes()]
                for action in draws.uniform(-1, 1, (60, *ours.action_space.shape)).astype(np.float32):
                    seen, *judged = ours.step(action)
                    rows += [seen.tobytes(), judged]
                shown.setdefault(kept, []).append(rows)
            ours.close()
        assert len(bullet._IDLE) == min(kept, 1)
    assert len(shown) == 2
    assert shown[0] == shown[bullet.KEPT]


@pytest.mark.needs("bullet")
def test_few_connections_are_kept(monkeypatch):
    monkeypatch.setattr(bullet, "_IDLE", [])
    worlds = [make_environment(find_environment("hopperbullet"))[0] for _ in range(bullet.KEPT + 2)]
    for world in worlds:
        world.reset(seed=1)
    for world in worlds * 2:
        world.close()
    assert len({client._client for client in bullet._IDLE}) == len(bullet._IDLE) == bullet.KEPT


def test_sums_are_numpys():
    draws = np.random.default_rng(2)
    for count in range(1, MOST + 1):
        for numbers in draws.normal(size=(20, count, 3)) * 10.0 ** draws.integers(-8, 8, (20, count, 1)):
            columns = numbers.T.tolist()
            assert [add_up(column) for column in columns] == [numbers.ravel()[i::3].sum() for i in range(3)]


def test_sines_do_not_depend_on_what_is_beside():
    angles = np.random.default_rng(3).uniform(-7, 7, (2000, 2)) * 10.0 ** np.arange(-9, 1).repeat(200)[:, None]
    for function in (np.sin, np.cos):
        for pair in angles:
            assert function(pair).tolist() == [function(pair[0]), function(pair[1])]
