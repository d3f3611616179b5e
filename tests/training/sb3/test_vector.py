"""What training sees of a game is what stable-baselines3's wrappers show."""

from typing import Any

import numpy as np
import pytest
import stable_baselines3 as sb3
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import NoopResetEnv
from stable_baselines3.common.env_util import make_atari_env, make_vec_env, unwrap_wrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecTransposeImage,
    is_vecenv_wrapped,
)

from quarl_bench.environments.atari import games as atari
from quarl_bench.environments.atari.games import GamePool
from quarl_bench.environments.registry import Environment, find_environment
from quarl_bench.training.sb3 import games as module
from quarl_bench.training.sb3.vector import make_vector
from tests.support.sizes import exhaustive

SEED, NOOPS = 5, 11
pytestmark = [
    pytest.mark.needs("atari"),
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),  # v4 is meant
]


@pytest.fixture
def breakout() -> Environment:
    return find_environment("breakout")


def make_twin(environment: Environment) -> VecEnv:
    """The wrapped games, each started behind `NOOPS`."""
    stacked = VecFrameStack(make_atari_env(environment.id, n_envs=2), 4)
    for wrapped in stacked.unwrapped.envs:
        unwrap_wrapper(wrapped, NoopResetEnv).override_num_noops = NOOPS
    return VecTransposeImage(stacked)


def step(environments: VecEnv, actions: NDArray[np.int64]) -> tuple[Any, ...]:
    environments.step_async(actions)
    return environments.step_wait()


# Long enough for a game of Pong, of one life, and several of Breakout, of five, in both environments.
@pytest.mark.parametrize("slug, steps, lives", [("breakout", 700, 5), pytest.param("pong", 1200, 1, marks=exhaustive)])
def test_training_sees_what_the_wrappers_show(
    slug: str, steps: int, lives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "draw_noops", lambda _: NOOPS)
    environment = find_environment(slug)
    ours, twin = make_vector(environment, 2, SEED), make_twin(environment)
    assert (ours.observation_space, ours.action_space) == (twin.observation_space, twin.action_space)
    rng = np.random.default_rng(0)
    assert np.array_equal(ours.reset(), twin.reset())
    ends, games, lengths = 0, 0, np.zeros(2, np.int64)
    for _ in range(steps):
        actions = rng.integers(ours.action_space.n, size=2)
        found, expected = step(ours, actions), step(twin, actions)
        for left, right in zip(found[:3], expected[:3], strict=True):  # observations, rewards, dones
            assert left.dtype == right.dtype
            assert np.array_equal(left, right)
        ends, lengths = ends + found[2].sum(), lengths + 1
        for index, (info, other) in enumerate(zip(found[3], expected[3], strict=True)):
            assert info["TimeLimit.truncated"] == other["TimeLimit.truncated"]
            assert info.keys() == other.keys() & {"TimeLimit.truncated", "terminal_observation", "episode"}
            if "terminal_observation" in info:
                assert np.array_equal(info["terminal_observation"], other["terminal_observation"])
            if "episode" in info:
                assert info["episode"]["r"] == other["episode"]["r"]
                assert info["episode"]["l"] == lengths[index]
                assert info["episode"]["t"] > 0
                games, lengths[index] = games + 1, 0
    assert games >= 2
    assert ends >= lives * games
    ours.close(), twin.close()


def test_a_game_that_is_cut_off_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last value is bootstrapped, as behind stable-baselines3's wrappers."""
    monkeypatch.setattr(atari, "FRAME_LIMIT", 400)
    atari.GAMES.clear()  # they have the limit that they were made with
    ours = make_vector(find_environment("pong"), 1, SEED)
    ours.reset()
    done, infos = [False], [{"TimeLimit.truncated": None}]
    while not done[0]:
        assert not infos[0]["TimeLimit.truncated"]
        *_, done, infos = step(ours, np.zeros(1, np.int64))
    assert infos[0]["TimeLimit.truncated"]
    assert infos[0]["episode"]["l"] <= 100
    ours.close()
    atari.GAMES.clear()


def test_rewards_are_signs_and_returns_are_not_clipped() -> None:
    ours = make_vector(find_environment("spaceinvaders"), 2, SEED)
    ours.reset()
    rng = np.random.default_rng(0)
    rewards, returns = set(), []
    for _ in range(500):
        _, gained, _, infos = step(ours, rng.integers(6, size=2))
        rewards |= set(gained.tolist())
        returns += [info["episode"]["r"] for info in infos if "episode" in info]
    assert rewards == {0.0, 1.0}
    assert max(returns) > 50  # of invaders worth 5 to 30
    ours.close()


def test_a_reset_starts_new_games(breakout: Environment) -> None:
    ours = make_vector(breakout, 2, SEED)
    first = ours.reset()
    for _ in range(30):
        moved = step(ours, np.array([1, 2]))[0]
    again = ours.reset()
    assert not np.array_equal(moved, first)
    assert not again[:, :3].any()  # no frames from before
    rng = np.random.default_rng(0)
    steps = (step(ours, rng.integers(4, size=2))[3][0] for _ in range(1000))
    lengths = [(count, info["episode"]["l"]) for count, info in enumerate(steps, 1) if "episode" in info]
    assert lengths[0][0] == lengths[0][1]  # the steps from before are forgotten
    ours.close()


def test_starts_depend_on_seed_and_place(breakout: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    draw = module.draw_noops
    monkeypatch.setattr(module, "draw_noops", lambda generator: drawn.append(draw(generator)) or drawn[-1])
    for seed in (0, 0, 1):
        ours = make_vector(breakout, 3, seed)
        ours.reset()
        ours.close()
    assert drawn[:3] == drawn[3:6]
    assert drawn[6:] != drawn[:3]
    assert len(set(drawn[:3])) > 1


def test_closed_environments_lend_their_games(breakout: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GAMES", GamePool())
    first = make_vector(breakout, 2, SEED)
    games = set(first._games._games)
    first.close(), first.close()
    assert set(make_vector(breakout, 2, SEED)._games._games) == games


def test_stable_baselines_trains_on_it(breakout: Environment) -> None:
    ours = make_vector(breakout, 2, SEED)
    model = sb3.PPO("CnnPolicy", ours, n_steps=128, batch_size=64, n_epochs=1, seed=0, device="cpu")
    before = model.policy.action_net.weight.detach().clone()
    model.learn(512)
    assert model.get_env() is ours  # images come channel first, and need no wrapper
    assert model.num_timesteps == 512
    assert not model.policy.action_net.weight.equal(before)
    assert len(model.ep_info_buffer) > 0
    assert all(0 < episode["l"] < 300 for episode in model.ep_info_buffer)
    ours.close()


def test_it_says_that_nothing_is_wrapped(breakout: Environment) -> None:
    ours = make_vector(breakout, 3, SEED)
    assert ours.env_is_wrapped(Monitor) == [False] * 3
    assert ours.env_is_wrapped(Monitor, indices=[0, 2]) == [False] * 2
    assert not is_vecenv_wrapped(ours, VecMonitor)
    assert ours.get_attr("render_mode") == [None] * 3
    for call in (ours.set_attr, ours.env_method):
        with pytest.raises(NotImplementedError, match="lives"):
            call("lives", 1)
    ours.close()


def test_other_environments_are_stable_baselines_own() -> None:
    ours = make_vector(find_environment("cartpole"), 3, SEED)
    assert type(ours) is DummyVecEnv
    first = ours.reset()
    assert first.shape == (3, 4)
    again = make_vector(find_environment("cartpole"), 3, SEED)
    np.testing.assert_array_equal(again.reset(), first)
    ours.close(), again.close()


@pytest.mark.needs("box2d")
def test_nobody_looks_at_a_training() -> None:
    """Engines leave no particles behind, and every number is what it is where they do."""
    environment = find_environment("lunarlander")
    ours, theirs = make_vector(environment, 2, SEED), make_vec_env(environment.id, 2, seed=SEED)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng, bodies = np.random.default_rng(0), {"ours": 0, "theirs": 0}
    for _ in range(300):
        actions = rng.integers(0, 4, 2)
        for got, expected in zip(step(ours, actions)[:3], step(theirs, actions)[:3], strict=True):
            np.testing.assert_array_equal(got, expected)
        for name, environments in (("ours", ours), ("theirs", theirs)):
            count = max(len(world.bodies) for world in environments.get_attr("world"))
            bodies[name] = max(bodies[name], count)
    assert bodies["ours"] == 4  # moon, lander, legs
    assert bodies["theirs"] > 10
    ours.close(), theirs.close()
