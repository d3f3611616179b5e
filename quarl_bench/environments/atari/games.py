"""Atari games as stable-baselines3's AtariWrapper and VecFrameStack(4) present them, without the wrappers.

One emulator is driven directly: no-ops, frame skip with maximum, a FIRE sequence at the start of every life, 84x84 grey
frames in a stack that starts as zeros. Frames, rewards, lives and ends equal the wrappers' bit for bit, at about
the speed of ale-py's own vector environment, whose pixels differ (it takes grey before the maximum).
"""

import atexit
import hashlib
from collections import defaultdict
from typing import Any

import gymnasium
import numpy as np

from quarl_bench.environments.atari.bands import SIDE, Bytes
from quarl_bench.environments.atari.screens import Screens
from quarl_bench.errors import SpecError
from quarl_bench.system.extras import require

PRESET = "sb3-atari-1"  # the preprocessing below; a change of what an agent sees or scores is a new preset
SUFFIX = "NoFrameskip-v4"
NOOPS, SKIP, STACK = 30, 4, 4
FRAME_LIMIT = 108_000  # emulator frames of one game, as registered with Gymnasium
NOOP, FIRE, AFTER_FIRE = 0, 1, 2
NAMED = 8  # of so many steps one has a name of its state, which takes a third of a frame's time


def count_noops(seed: int) -> int:
    """How many no-ops (1..30) start the game that `gymnasium.make(id)` plays after `reset(seed=seed)`."""
    stream, _ = np.random.SeedSequence(seed).generate_state(2)
    return draw_noops(gymnasium.utils.seeding.np_random(int(stream))[0])


def draw_noops(generator: np.random.Generator) -> int:
    """The next start of a generator that serves several games."""
    return int(generator.integers(1, NOOPS + 1))


class Game:
    """One game; observations are stacks (4, 84, 84) of uint8, oldest frame first.

    A life ends when one is lost or the game is over; `begin_life` then goes on with the next life, or with a new game.
    Every game starts from the emulator's first state: Beam Rider and Seaquest remember the game before.
    """

    def __init__(self, id_: str) -> None:
        self._ale = load_emulator(id_)
        self._first = self._ale.cloneState()
        self.actions = self._ale.getMinimalActionSet()
        meanings = [action.name for action in self.actions]
        self._opening = (FIRE, AFTER_FIRE) if "FIRE" in meanings else ()
        self._screens = Screens(self._ale, _import("cv2"))
        self._stack = np.zeros((STACK, SIDE, SIDE), dtype=np.uint8)
        self._lives = 0
        self.over = True
        self.truncated = False  # at the limit of frames, and not by a lost life

    def begin_game(self, noops: int) -> tuple[Bytes, float, bool]:
        """A new game behind `noops` no-ops; see `begin_life`."""
        self.over = True
        return self.begin_life(noops)

    def begin_life(self, noops: int) -> tuple[Bytes, float, bool]:
        """The first observation of a life, the reward on the way there, and whether that ended a game.

        A game that is over starts again behind `noops` no-ops; a life that was lost is left by one no-op. Where FIRE
        serves the ball it is pressed.
        """
        reward, ended = self._enter(noops)
        for action in self._opening:
            gained, done = self._skip(action)
            reward += gained
            if done:
                ended |= self.over
                more, again = self._enter(noops)
                reward, ended = reward + more, ended or again
        self._stack[:] = 0
        self._stack[-1] = self._screens.frame
        return self._stack.copy(), reward, ended

    def step(self, action: int) -> tuple[Bytes, float, bool]:
        """Four frames of `action`: the stack behind them, their reward, and whether the life has ended."""
        reward, done = self._skip(action)
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = self._screens.frame
        return self._stack.copy(), reward, done

    def name_state(self) -> bytes | None:
        """What decides how a life goes on, as a hash: all of the emulator's state, what the agent sees, and its lives.

        None in most steps. In which it is not, the frame tells: games that are alike are so in these. The generator of
        sticky actions is left out, because there are none.
        """
        if self._ale.getEpisodeFrameNumber() % (NAMED * SKIP) >= SKIP:
            return None
        state = self._ale.cloneState().__getstate__()
        return hashlib.sha256(b"%d" % self._lives + self._stack.tobytes() + state).digest()

    @property
    def screen(self) -> Bytes:
        """What a player sees now: (210, 160, 3), RGB."""
        return self._screens.last

    def _enter(self, noops: int) -> tuple[float, bool]:
        """Leave a lost life or start a game; the reward, and whether leaving the life ended the game."""
        reward, ended = 0.0, False
        if not self.over:
            reward, _ = self._skip(NOOP)
            ended = self.over
        if self.over:
            self._start(noops)
        self._lives = self._ale.lives()
        return reward, ended

    def _start(self, noops: int) -> None:
        self._restart()
        for _ in range(noops):
            self._ale.act(self.actions[NOOP])
            if self._ale.game_over():
                self._restart()
        self._screens.take(0)
        self._screens.take(1)
        self.over = False

    def _restart(self) -> None:
        self._ale.restoreState(self._first)
        self._ale.reset_game()

    def _skip(self, action: int) -> tuple[float, bool]:
        """Reward of up to four frames, and whether a life was lost or the game is over."""
        chosen, reward = self.actions[action], 0
        for frame in range(SKIP):
            reward += self._ale.act(chosen)
            self.over = self._ale.game_over()
            if frame >= SKIP - 2:
                self._screens.take(frame - SKIP + 2)
            if self.over:
                break
        lives = self._ale.lives()
        # Q*bert stays at no lives for some frames before its game is over.
        lost = 0 < lives < self._lives
        self._lives = lives
        self.truncated = self._ale.game_truncated() and not lost
        return float(reward), self.over or lost


class GameSpaces(gymnasium.Env[Any, Any]):
    """What an agent of an Atari game sees and may do."""

    def __init__(self, id_: str) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(load_emulator(id_).getMinimalActionSet()))


class GamePool:
    """Games that wait for their next episode: loading a ROM takes as long as four hundred steps."""

    def __init__(self) -> None:
        self._idle: defaultdict[str, list[Game]] = defaultdict(list)

    def borrow(self, id_: str, count: int) -> list[Game]:
        """Lend `count` games, idle ones first; a game that is missing loads its ROM."""
        idle = self._idle[id_]
        return [idle.pop() if idle else Game(id_) for _ in range(count)]

    def give_back(self, id_: str, games: list[Game]) -> None:
        """Keep games for the next borrower; whatever they were doing is over."""
        self._idle[id_] += games

    def clear(self) -> None:
        """Drop every idle game, which frees its emulator's memory."""
        self._idle.clear()


GAMES = GamePool()  # of this process
atexit.register(GAMES.clear)  # what pytest keeps alive to the end ale-py would report as leaked, in thirty lines


def load_emulator(id_: str) -> Any:
    """An ale-py emulator with the game of the Gymnasium id, without sticky actions."""
    ale = _import("ale_py")
    ale.ALEInterface.setLoggerMode(ale.LoggerMode.Error)
    emulator = ale.ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.setInt("max_num_frames_per_episode", FRAME_LIMIT)
    emulator.loadROM(ale.roms.get_rom_path(_name_rom(id_)))
    return emulator


def _name_rom(id_: str) -> str:
    """`BeamRiderNoFrameskip-v4` -> beam_rider; SpecError for a game with sticky actions or frames of its own to skip.

    Evaluation counts games of equal starts once, and looks actions up by image: both hold without chance alone.
    """
    if not id_.endswith(SUFFIX):
        raise SpecError(f"environment {id_}: Atari is played without sticky actions, as <Game>{SUFFIX}; name that")
    name = id_.removesuffix(SUFFIX)
    return "".join("_" * (c.isupper() and i > 0) + c.lower() for i, c in enumerate(name))


def _import(name: str) -> Any:
    return require(name, "atari", "an Atari environment")
