"""Environments of the extras: made without noise, as fast and as true as they go, and trained on."""

import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation

from quarl_bench.environments import registry as environments
from quarl_bench.environments.registry import (
    Environment,
    EnvironmentPool,
    find_environment,
    identify_environment,
    make_environment,
)
from quarl_bench.errors import MissingExtra, PolicyError, SpecError
from quarl_bench.evaluation.batches.episodes import SteppedEpisodes, start_episodes
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.zoo_agents import check_fit
from quarl_bench.system.extras import describe_absence
from quarl_bench.training.sb3.vector import make_vector
from tests.support.places import ROOT
from tests.support.sizes import choose
from tests.support.strategies import make_linear_policy

DMC = {
    "cartpolebalancedmc": ((5,), (1,)),
    "cheetahrundmc": ((17,), (6,)),
    "walkerstanddmc": ((24,), (6,)),
    "walkerwalkdmc": ((24,), (6,)),
    "hopperstanddmc": ((15,), (4,)),
    "reacherharddmc": ((6,), (2,)),
    "fingerspindmc": ((9,), (2,)),
    "humanoidstanddmc": ((67,), (21,)),
    "humanoidwalkdmc": ((67,), (21,)),
}
BULLET = ("hopperbullet", "halfcheetahbullet", "walker2dbullet", "antbullet")
SHAPES = DMC | {
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


@pytest.fixture
def find_made(require) -> Callable[[str], Environment]:
    """Finds an environment; the test is skipped where its extra is not installed."""

    def find(slug: str) -> Environment:
        environment = find_environment(slug)
        if environment.extra:
            require(environment.extra)
        return environment

    return find


@pytest.mark.parametrize("slug", SHAPES)
def test_made_and_stepped_without_a_word(
    slug: str, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, find_made
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


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvironmentPool]:
    """An empty pool in the place of the process's."""
    empty = EnvironmentPool()
    monkeypatch.setattr("quarl_bench.evaluation.batches.episodes.ENVIRONMENTS", empty)
    yield empty
    empty.borrow(Environment("cartpole", "CartPole-v1"), 0)  # closes whatever idles


def make_twin(environment: Environment) -> gymnasium.Env[Any, Any]:
    """What Gymnasium itself makes of the id; `make_environment` has imported what registers it."""
    make_environment(environment)[0].close()
    twin = gymnasium.make(environment.id)
    return FlattenObservation(twin) if environment.extra == "dmc" else twin


@pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*Box observation space:UserWarning")  # the twin's checker on DMC's infinities
@pytest.mark.parametrize("slug", [*choose([*BULLET[:2], *list(DMC)[:2]], [*BULLET, *DMC]), "hopperv4", "antv5"])
def test_episodes_are_those_of_gymnasium(slug: str, pool: EnvironmentPool, find_made) -> None:
    """In an environment that played before, too: the second time all of them may come from the pool."""
    environment = find_made(slug)
    seeds = [3, 4, 5]
    twins = [make_twin(environment) for _ in seeds]
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.1, 1.1, (40, 3, *twins[0].action_space.shape)).astype(np.float32)
    actions = actions if environment.extra == "bullet" else np.clip(actions, twins[0].action_space.low, 1)
    for _ in range(2):
        episodes = start_episodes(environment, seeds)
        found, active = episodes.reset(), np.arange(3)
        for row, twin, seed in zip(found, twins, seeds, strict=True):
            np.testing.assert_array_equal(row, twin.reset(seed=seed)[0])
        for frame in actions:
            found, rewards, done = episodes.step(active, frame[active])
            for place, index in enumerate(active):
                expected, reward, terminated, truncated, _ = twins[index].step(frame[index])
                np.testing.assert_array_equal(found[place], expected)
                assert found.dtype == expected.dtype
                assert (rewards[place], done[place]) == (reward, terminated or truncated)
            active = active[~done]
            if not len(active):
                break
        episodes.close()
        if environment.extra == "bullet":  # whose twins remember
            twins = [make_twin(environment) for _ in seeds]
    for twin in twins:
        twin.close()


def test_only_the_last_task_idles_and_only_what_a_reset_makes_new(pool: EnvironmentPool, find_made) -> None:
    hopper, cheetah, bullet = map(find_made, ("hopperv4", "halfcheetahv4", "hopperbullet"))
    made = pool.borrow(hopper, 2)
    pool.give_back(hopper, made)
    again = pool.borrow(hopper, 3)
    assert {id(bare) for bare, _ in made} < {id(bare) for bare, _ in again}
    assert [limit for _, limit in again] == [1000] * 3
    pool.give_back(hopper, again)
    other = pool.borrow(cheetah, 1)
    assert not {id(bare) for bare, _ in pool.borrow(hopper, 3)} & {id(bare) for bare, _ in again}
    closed = pool.borrow(bullet, 1)
    pool.give_back(bullet, closed)
    assert pool.borrow(bullet, 1)[0][0] is not closed[0][0]
    assert pool.borrow(cheetah, 1)[0][0] is not other[0][0]  # which was never given back


def test_stepped_episodes_start_over() -> None:
    """Also their count of steps: after a reset they last as long as before."""
    episodes = SteppedEpisodes(find_environment("pendulum"), [1])
    lengths = []
    for _ in range(2):
        episodes.reset()
        count, done = 0, np.array([False])
        while not done[0]:
            done = episodes.step(np.arange(1), np.zeros((1, 1), np.float32))[2]
            count += 1
        lengths.append(count)
    episodes.close()
    assert lengths == [200, 200]


def test_an_episode_that_the_environment_itself_truncates_has_ended(find_made) -> None:
    """A DeepMind Control task ends at its own limit, which is the one that is listed."""
    environment = replace(find_made("cartpolebalancedmc"), limit=1001)
    policy = make_linear_policy(np.zeros((1, 5)), (-1, 1))
    assert roll_out(policy, environment, [1]).lengths.tolist() == [1000]


def test_motors_are_not_given_what_no_motor_can_do(find_made) -> None:
    episodes = start_episodes(find_made("hopperbullet"), [1])
    episodes.reset()
    with pytest.raises(PolicyError, match="is not finite"):
        episodes.step(np.arange(1), np.full((1, 3), np.nan, np.float32))
    episodes.close()


def test_memory_bounds_what_is_played_side_by_side() -> None:
    """A world of Bullet takes 32 MB."""
    assert find_environment("antbullet").side_by_side <= 16
    assert find_environment("cartpole").side_by_side is None


def test_bodies_that_take_turns_in_one_simulator_are_played_all_at_once() -> None:
    hopper = find_environment("hopperv4")
    assert hopper.side_by_side is None
    apart = find_environment("humanoidv4"), replace(hopper, time_feature=True)
    assert all(environment.side_by_side == 32 for environment in apart)


@pytest.mark.needs("sb3_contrib")
@pytest.mark.parametrize("slug", ["pendulum", "cartpole", "hopperv4", "halfcheetahbullet", "cheetahrundmc"])
def test_the_time_feature_is_that_of_sb3_contrib(slug: str, find_made) -> None:
    from sb3_contrib.common import wrappers

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


def test_a_bullet_episode_is_its_own(find_made) -> None:
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


def test_a_task_of_deepmind_control_has_its_own_name_too() -> None:
    assert [*map(identify_environment, ("walker-walk", "cheetah-run"))] == [
        *map(find_environment, ("walkerwalkdmc", "cheetahrundmc"))
    ]


@pytest.mark.parametrize("slug", ["hopperbullet", "hopperv4", "cheetahrundmc"])
@pytest.mark.parametrize("time_feature", [False, True])
def test_training_steps_what_evaluation_steps(
    slug: str,
    time_feature: bool,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    find_made,
) -> None:
    """Quietly, with the step limit, behind which the remaining time is all again."""
    monkeypatch.chdir(tmp_path)
    environment = replace(find_made(slug), time_feature=time_feature)
    vector, (bare, limit) = make_vector(environment, 2, 5), make_environment(environment)
    assert vector.num_envs == 2
    assert vector.observation_space == bare.observation_space
    first = vector.reset()
    np.testing.assert_array_equal(first[1], bare.reset(seed=6)[0])
    action = np.full((2, *bare.action_space.shape), 0.3, np.float32)
    found, rewards, _, _ = vector.step(action)
    expected, reward, *_ = bare.step(action[1])
    np.testing.assert_array_equal(found[1], expected)
    assert rewards[1] == np.float32(reward)
    for _ in range(limit):
        found, _, done, infos = vector.step(action)
        if done.any():
            break
    last = infos[done.argmax()]
    assert last["episode"]["l"] <= limit
    if slug == "cheetahrundmc":
        assert (last["episode"]["l"], last["TimeLimit.truncated"]) == (limit, True)
    if time_feature:
        assert last["terminal_observation"][-1] == pytest.approx(1 - last["episode"]["l"] / limit)
        assert found[done.argmax(), -1] == 1
    vector.close()
    bare.close()
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


def test_atari_games_have_the_spaces_of_their_agents(find_made) -> None:
    environment = find_made("pong")
    bare, limit = make_environment(environment)
    assert (bare.observation_space.shape, bare.observation_space.dtype) == ((4, 84, 84), np.uint8)
    assert (bare.action_space.n, limit) == (6, 27_000)
    assert make_environment(find_environment("seaquest"))[0].action_space.n == 18
    with pytest.raises(SpecError, match="needs observations in a vector"):
        make_environment(replace(environment, time_feature=True))


def test_an_agent_of_other_observations_is_refused(find_made) -> None:
    """Ant-v3 observed contact forces, 111 numbers; both shapes are named."""
    find_made("antv4")
    policy = make_linear_policy(np.zeros((8, 111)), (-1, 1))
    with pytest.raises(PolicyError, match=r"an agent of \(111,\) observations cannot play Ant-v4, .*\(27,\)"):
        check_fit(policy, identify_environment("Ant-v3"))
    check_fit(make_linear_policy(np.zeros((8, 27)), (-1, 1)), identify_environment("Ant-v3"))


@pytest.mark.parametrize(
    "name, meant",
    [
        ("ponng", "pong"),
        ("CartPole", "cartpole"),
        ("half-cheetah-v4", "halfcheetahv4"),
        ("walkerwalk", "walkerwalkdmc"),
        ("hoper", "hopperv5 or hopperv4"),
    ],
)
def test_a_misspelt_environment_is_recognised(name: str, meant: str) -> None:
    for find in (find_environment, identify_environment):
        with pytest.raises(SpecError, match=rf"^unknown environment '{name}'; did you mean {meant}\?$"):
            find(name)


def test_what_resembles_nothing_gets_no_proposal() -> None:
    with pytest.raises(SpecError, match=r"^unknown environment 'go'; known are acrobot, .*walkerwalkdmc$"):
        find_environment("go")
    with pytest.raises(SpecError, match=r"^unknown environment 'go'; known are .* and Gymnasium's own ids$"):
        identify_environment("go")


@pytest.mark.parametrize(
    "slug, module",
    [
        ("hopperbullet", "pybullet_envs_gymnasium"),
        ("hopperv4", "mujoco"),
        ("antv5", "mujoco"),
        ("cheetahrundmc", "dm_control"),
        ("cheetahrundmc", "shimmy"),
    ],
)
def test_a_missing_extra_is_named(slug: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra) as caught:
        make_environment(find_environment(slug))
    assert str(caught.value) == str(describe_absence(find_environment(slug).extra, f"environment '{slug}'"))


def test_the_extra_of_atari_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(MissingExtra, match=r"pip install 'quarl_bench\[atari\]'"):
        make_environment(find_environment("pong"))


def test_the_extra_of_box2d_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for name in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtra) as caught:
        make_environment(find_environment("bipedalwalker"))
    assert str(caught.value) == str(describe_absence("box2d", "environment 'bipedalwalker'"))


def test_every_extra_of_an_environment_can_be_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {entry.extra for entry in environments._read_environments().values()} - {""}
    assert wanted <= extras.keys()
    everything = extras["all"][0].partition("[")[2].rstrip("]").split(",")
    alone = {name for name, listed in extras.items() if "numpy<2" in listed}
    assert alone == {"navigation", "tflite-runtime"}
    assert (wanted | {"hub"}) - alone <= set(everything)


def test_an_environment_that_gymnasium_gave_up_is_refused() -> None:
    """Registered still, but only to say so."""
    for name in ("Reacher-v2", "LunarLander-v1"):
        with pytest.raises(SpecError) as caught:
            make_environment(identify_environment(name))
        assert "\n" not in str(caught.value)
