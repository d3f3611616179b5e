"""Environments of the extras: made without noise, with the remaining time where agents were trained on it."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from quarl_bench.errors import MissingExtra, SpecError
from quarl_bench.rl.environments import Environment, find_environment, identify_environment, make_environment
from quarl_bench.rl.episodes import SteppedEpisodes, start_episodes

MODULES = {"bullet": "pybullet_envs_gymnasium", "mujoco": "mujoco", "box2d": "Box2D"}
SHAPES = {
    "hopperv4": ((11,), (3,)),
    "halfcheetahv4": ((17,), (6,)),
    "walker2dv4": ((17,), (6,)),
    "antv4": ((27,), (8,)),
    "humanoidv4": ((376,), (17,)),
    "hopperv5": ((11,), (3,)),
    "halfcheetahv5": ((17,), (6,)),
    "walker2dv5": ((17,), (6,)),
    "antv5": ((105,), (8,)),
    "humanoidv5": ((348,), (17,)),
    "hopperbullet": ((15,), (3,)),
    "halfcheetahbullet": ((26,), (6,)),
    "walker2dbullet": ((22,), (6,)),
    "antbullet": ((28,), (8,)),
}


def find_made(slug: str) -> Environment:
    """The environment, or a skip where its extra is not installed."""
    environment = find_environment(slug)
    if environment.extra:
        pytest.importorskip(MODULES[environment.extra], reason=f"needs the {environment.extra} extra")
    return environment


@pytest.mark.parametrize("slug", SHAPES)
def test_made_and_stepped_without_a_word(
    slug: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Warnings are errors here; Bullet prints from C code, MuJoCo writes a file into the working directory."""
    monkeypatch.chdir(tmp_path)
    bare, limit = make_environment(find_made(slug))
    observations, actions = SHAPES[slug]
    assert (bare.observation_space.shape, bare.action_space.shape, limit) == (observations, actions, 1000)
    first, _ = bare.reset(seed=3)
    assert first.shape == observations
    again, *_ = bare.step(np.zeros(actions, np.float32))
    assert again.shape == observations
    np.testing.assert_array_equal(bare.reset(seed=4)[0].shape, observations)
    bare.close()
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("slug", ["pendulum", "cartpole", "hopperv4", "halfcheetahbullet"])
def test_the_time_feature_is_that_of_sb3_contrib(slug: str) -> None:
    wrappers = pytest.importorskip("sb3_contrib.common.wrappers", reason="compares with sb3-contrib")
    environment = replace(find_made(slug), time_feature=True)
    ours, limit = make_environment(environment)
    bare, _ = make_environment(replace(environment, time_feature=False))
    theirs = wrappers.TimeFeatureWrapper(gymnasium.wrappers.TimeLimit(bare, limit), max_steps=limit)
    assert ours.observation_space == theirs.observation_space
    rng = np.random.default_rng(0)
    for seed in (5, 6):
        first, expected = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        np.testing.assert_array_equal(first, expected)
        assert first[-1] == 1
        for step in range(1, 60):
            space = ours.action_space
            action = rng.uniform(-1, 1, space.shape).astype(np.float32) if space.shape else int(step % 2)
            found, expected = ours.step(action), theirs.step(action)
            np.testing.assert_array_equal(found[0], expected[0])
            assert found[0].dtype == expected[0].dtype
            assert found[1:3] == expected[1:3]
            assert found[0][-1] == pytest.approx(1 - step / limit)
            if found[2]:
                break
    ours.close()
    theirs.close()


def test_the_time_feature_is_played_whatever_the_dynamics() -> None:
    episodes = start_episodes(identify_environment("CartPole-v1", time_feature=True), [1, 2])
    assert type(episodes) is SteppedEpisodes
    plain = start_episodes(find_environment("cartpole"), [1, 2])
    found, expected = episodes.reset(), plain.reset()
    np.testing.assert_array_equal(found[:, :4], expected)
    np.testing.assert_array_equal(found[:, 4], 1)
    both, actions = np.arange(2), np.array([0, 1])
    found, expected = episodes.step(both, actions)[0], plain.step(both, actions)[0]
    np.testing.assert_array_equal(found[:, :4], expected)
    np.testing.assert_array_equal(found[:, 4], np.float32(1 - 1 / 500))
    episodes.close()
    plain.close()


def test_a_time_feature_needs_a_vector() -> None:
    gymnasium.register("Pictures-v0", lambda **_: Pictures(), max_episode_steps=5)
    try:
        with pytest.raises(SpecError, match="needs observations in a vector"):
            make_environment(Environment("pictures", "Pictures-v0", time_feature=True))
    finally:
        del gymnasium.registry["Pictures-v0"]


class Pictures(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(0, 255, (4, 4, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)


def test_a_bullet_episode_is_its_own() -> None:
    """It depends neither on what runs beside it nor on what ran before."""
    environment = find_made("hopperbullet")
    action = np.full((1, 3), 0.2, np.float32)
    plays = []
    for seeds in ([7], [6, 7, 8]):
        episodes = start_episodes(environment, seeds)
        rows = [episodes.reset()[seeds.index(7)]]
        everyone = np.arange(len(seeds))
        actions = action.repeat(len(seeds), 0)
        rows += [episodes.step(everyone, actions)[0][seeds.index(7)] for _ in range(20)]
        episodes.close()
        plays.append(np.stack(rows))
    np.testing.assert_array_equal(*plays)


@pytest.mark.parametrize(
    "old, slug",
    [
        ("LunarLander-v2", "lunarlander"),
        ("HalfCheetah-v3", "halfcheetahv4"),
        ("Hopper-v2", "hopperv4"),
        ("Walker2d-v3", "walker2dv4"),
        ("Humanoid-v3", "humanoidv4"),
        ("HalfCheetahBulletEnv-v0", "halfcheetahbullet"),
        ("Hopper-v5", "hopperv5"),
        ("hopperv5", "hopperv5"),
        ("CartPole-v1", "cartpole"),
    ],
)
def test_old_ids_lead_to_living_environments(old: str, slug: str) -> None:
    assert identify_environment(old) == find_environment(slug)
    assert identify_environment(old, time_feature=True).time_feature


@pytest.mark.parametrize(
    "slug, module", [("hopperbullet", "pybullet_envs_gymnasium"), ("hopperv4", "mujoco"), ("antv5", "mujoco")]
)
def test_a_missing_extra_is_named(slug: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    extra = find_environment(slug).extra
    with pytest.raises(
        MissingExtra, match=rf"environment '{slug}' needs an extra: pip install 'quarl_bench\[{extra}\]'"
    ):
        make_environment(find_environment(slug))


def test_an_environment_that_gymnasium_gave_up_is_refused() -> None:
    """Registered still, but only to say so."""
    for name in ("Reacher-v2", "LunarLander-v1"):
        with pytest.raises(SpecError) as caught:
            make_environment(identify_environment(name))
        assert "\n" not in str(caught.value)
