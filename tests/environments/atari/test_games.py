"""Games equal stable-baselines3's wrappers, pixel by pixel."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import AtariWrapper

from quarl_bench.environments.atari import games as atari
from quarl_bench.environments.atari.games import FRAME_LIMIT, SKIP, SUFFIX, Game, GamePool, count_noops
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import MissingExtra
from quarl_bench.evaluation.batches import games as evaluated
from quarl_bench.evaluation.batches.games import GameEpisodes
from quarl_bench.training.sb3 import games
from quarl_bench.training.sb3.vector import make_vector
from tests.support.forks import run_python
from tests.support.sizes import choose

GAMES = ("BeamRider", "Breakout", "MsPacman", "Pong", "Qbert", "Seaquest", "SpaceInvaders")
SEED = 3
TAKEN = choose(("Breakout", "MsPacman", "Pong"), GAMES)  # five lives, three, none
everywhere = pytest.mark.parametrize("name", TAKEN)
pytestmark = [
    pytest.mark.needs("atari"),
    # v4 is meant, and its twin says so when it is made.
    pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning"),
]


class Twin:
    """The same game through stable-baselines3, its last four frames, and the seed that every game starts from."""

    def __init__(self, name: str, **options: Any) -> None:
        made = gymnasium.make(name + SUFFIX, disable_env_checker=True, **options)
        self._environment = AtariWrapper(made, clip_reward=False)
        self.emulator: Any = made.unwrapped.ale

    def reset(self, seed: int = SEED) -> NDArray[np.uint8]:
        # With the seed the ROM is loaded again, so that a game cannot remember the one before.
        frame, _ = self._environment.reset(seed=seed)
        self._frames = [np.zeros((84, 84), np.uint8)] * 3 + [frame[..., 0]]
        return np.stack(self._frames)

    def step(self, action: int) -> tuple[NDArray[np.uint8], float, bool]:
        frame, reward, terminated, truncated, _ = self._environment.step(action)
        self._frames = [*self._frames[1:], frame[..., 0]]
        return np.stack(self._frames), float(reward), terminated or truncated


def draw_actions(game: Game, count: int) -> list[int]:
    return np.random.default_rng(0).integers(len(game.actions), size=count).tolist()


@everywhere
def test_a_game_equals_its_wrapped_twin(name: str) -> None:
    game, twin = Game(name + SUFFIX), Twin(name)
    lives = games = 0
    rewards = set()
    assert np.array_equal(game.begin_game(count_noops(SEED))[0], twin.reset())
    for action in draw_actions(game, choose(1200 if name == "Pong" else 700, 2000)):
        observation, reward, ended = game.step(action)
        expected, expected_reward, expected_end = twin.step(action)
        assert np.array_equal(observation, expected)
        assert (reward, ended, game._ale.lives()) == (expected_reward, expected_end, twin.emulator.lives())
        rewards.add(reward)
        if ended:
            lives, games = lives + 1, games + game.over
            assert np.array_equal(game.begin_life(count_noops(SEED))[0], twin.reset())
    assert games >= 1
    assert len(rewards) > 1
    assert lives > games or name == "Pong"  # which has no lives


@everywhere
def test_a_used_game_plays_as_a_fresh_one(name: str) -> None:
    used, fresh = Game(name + SUFFIX), Game(name + SUFFIX)
    used.begin_game(5)
    for action in draw_actions(used, choose(200, 400)):
        if used.step(action)[2]:
            used.begin_life(5)
    assert np.array_equal(used.begin_game(9)[0], fresh.begin_game(9)[0])
    for action in draw_actions(used, choose(100, 200)):
        found, expected = used.step(action), fresh.step(action)
        assert np.array_equal(found[0], expected[0])
        assert found[1:] == expected[1:]
        if found[2]:
            assert np.array_equal(used.begin_life(9)[0], fresh.begin_life(9)[0])


@pytest.mark.parametrize("name, opening", [("Pong", 2 * SKIP), ("MsPacman", 0)])
def test_noops_are_those_that_stable_baselines_draws(name: str, opening: int) -> None:
    for seed in choose((0, 1, 20_000), (0, 1, 10_000, 10_001, 20_000)):
        twin = Twin(name)
        twin.reset(seed)
        assert twin.emulator.getEpisodeFrameNumber() == count_noops(seed) + opening


def test_noops_reach_from_1_to_30() -> None:
    assert {count_noops(seed) for seed in range(500)} == set(range(1, 31))


def test_an_observation_stays_what_it_was() -> None:
    game = Game("Breakout" + SUFFIX)
    first, _, _ = game.begin_game(1)
    second, _, _ = game.step(2)
    kept = first.copy(), second.copy()
    game.step(3)
    assert np.array_equal(first, kept[0])
    assert np.array_equal(second, kept[1])
    assert np.array_equal(second[:-1], first[1:])


# Within a step that loses a life, while the life is left (by a no-op from frame 101, by FIRE from 105), and later.
# Where the last action of an opening is cut stable-baselines3 shows a frame of the game before, and we do not.
@pytest.mark.parametrize("limit", choose([101, 107], [98, 101, 104, 107, 300]))
def test_the_frame_limit_ends_a_game(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "FRAME_LIMIT", limit)
    game, twin = Game("Breakout" + SUFFIX), Twin("Breakout", max_num_frames_per_episode=limit)
    assert np.array_equal(game.begin_game(count_noops(SEED))[0], twin.reset())
    cut = 0
    for action in draw_actions(game, choose(max(40, limit // 3), 100)):
        observation, reward, ended = game.step(action)
        expected = twin.step(action)
        assert np.array_equal(observation, expected[0])
        assert (reward, ended) == expected[1:]
        if ended:
            cut += game._ale.game_truncated()
            observation, _, over = game.begin_life(count_noops(SEED))
            cut += over
            assert np.array_equal(observation, twin.reset())
        assert game._ale.getEpisodeFrameNumber() == twin.emulator.getEpisodeFrameNumber() <= limit
    assert cut


@everywhere
def test_an_emulator_is_set_up_as_gymnasium_registers_it(name: str) -> None:
    options = gymnasium.spec(name + SUFFIX).kwargs
    emulator = atari.load_emulator(name + SUFFIX)
    assert atari._name_rom(name + SUFFIX) == options["game"]
    assert emulator.getInt("max_num_frames_per_episode") == options["max_num_frames_per_episode"] == FRAME_LIMIT
    assert emulator.getFloat("repeat_action_probability") == options["repeat_action_probability"] == 0.0


@pytest.mark.parametrize("module", ["ale_py", "cv2"])
def test_a_missing_extra_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'quarl_bench\[atari\]'") as caught:
        Game("Pong" + SUFFIX)
    assert caught.value.extra == "atari"


def test_the_pool_lends_a_game_to_one_borrower_at_a_time() -> None:
    pool = GamePool()
    first, second = pool.borrow("Pong" + SUFFIX, 2)
    assert first is not second
    pool.give_back("Pong" + SUFFIX, [first])
    other, third = *pool.borrow("Breakout" + SUFFIX, 1), *pool.borrow("Pong" + SUFFIX, 1)
    assert (third is first, other is first) == (True, False)


def test_idle_games_are_gone_before_the_process_ends() -> None:
    # ale-py reports on stderr what is left then; pytest is one of those that keep modules alive.
    script = """
import ctypes
from quarl_bench.environments.atari.games import GAMES
GAMES.give_back("PongNoFrameskip-v4", GAMES.borrow("PongNoFrameskip-v4", 1))
ctypes.pythonapi.Py_IncRef(ctypes.py_object(GAMES))
"""
    result = run_python("-c", script, check=True)
    assert result.stderr == ""


class Paying:
    """An emulator whose every frame pays one point."""

    def __init__(self, emulator: Any) -> None:
        self._emulator = emulator

    def act(self, action: Any) -> int:
        self._emulator.act(action)
        return 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emulator, name)


@pytest.fixture
def paying(monkeypatch: pytest.MonkeyPatch) -> None:
    load = atari.load_emulator
    monkeypatch.setattr(atari, "load_emulator", lambda id_: Paying(load(id_)))
    for borrower in (evaluated, games):
        monkeypatch.setattr(borrower, "GAMES", GamePool())


@pytest.mark.parametrize("slug", ["breakout", "mspacman"])
def test_an_episode_counts_the_rewards_between_its_lives(paying: None, slug: str) -> None:
    # Those of all frames behind the no-ops: of steps, of FIRE, and of leaving a lost life.
    played = GameEpisodes(find_environment(slug), [SEED, SEED + 1])
    played.reset()
    active, totals, steps = np.arange(2), np.zeros(2), np.zeros(2)
    rng = np.random.default_rng(0)
    while len(active):
        actions = rng.integers(len(played._games[0].actions), size=len(active))
        _, rewards, done = played.step(active, actions)
        totals[active] += rewards
        steps[active] += 1
        active = active[~done]
    frames = [game._ale.getEpisodeFrameNumber() for game in played._games]
    assert totals.tolist() == [frames[0] - count_noops(SEED), frames[1] - count_noops(SEED + 1)]
    assert (totals > SKIP * steps).all()  # else nothing was earned between lives


def test_training_reports_the_rewards_between_lives(paying: None) -> None:
    played = make_vector(find_environment("breakout"), 1, SEED)
    played.reset()
    rng = np.random.default_rng(0)
    infos = (played.step(rng.integers(4, size=1))[3][0] for _ in range(600))
    games = [info["episode"] for info in infos if "episode" in info]
    between = 2 * SKIP + 4 * 3 * SKIP  # one opening; four lives that are left by a no-op, and another opening each
    assert len(games) >= 2
    assert all(0 <= SKIP * game["l"] + between - game["r"] < SKIP for game in games)  # the last step may be cut


def test_an_episode_ends_where_leaving_a_life_ends_the_game(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluated, "GAMES", GamePool())
    played = GameEpisodes(find_environment("breakout"), [SEED])
    actions = draw_actions(played._games[0], 300)

    def play() -> int:
        played.reset()
        ends = (played.step(np.arange(1), np.array([action]))[2][0] for action in actions)
        return 1 + next(step for step, done in enumerate(ends) if done)

    def lose_a_life() -> tuple[int, int]:
        game = played._games[0]
        game.begin_game(count_noops(SEED))
        steps = 1 + next(step for step, action in enumerate(actions) if game.step(action)[2])
        return steps, game._ale.getEpisodeFrameNumber()

    whole, (life, frame) = play(), lose_a_life()
    assert life < whole
    emulator = played._games[0]._ale
    # The limit is read when a ROM is loaded.
    for extra_frames, length in ((1, life), (4, life), (12, life), (13, life + 1)):
        emulator.setInt("max_num_frames_per_episode", frame + extra_frames)
        emulator.loadROM(atari._import("ale_py").roms.get_rom_path("breakout"))
        assert play() == length
