"""Atari games as training sees them, without torch: a process that steps games is ready in a fraction of a second."""

import ctypes
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.atari.bands import SIDE, Bytes
from quarl_bench.environments.atari.games import GAMES, STACK, draw_noops
from quarl_bench.environments.registry import Environment

Shared = ctypes.Array[Any]  # bytes that processes share: a RawArray
Outcome = tuple[NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]  # rewards, dones, infos


class Games:
    """Games that are stepped together: an episode is one life, and a reward is its sign.

    `infos` carry what Monitor adds: return and length of whole games, unclipped. `first` is the number of the first
    game where these are some of a run's games; every game has its own start generator.
    """

    def __init__(self, environment: Environment, count: int, seed: int, *, first: int = 0) -> None:
        self._id = environment.id
        self._games = GAMES.borrow(self._id, count)
        self.actions = gymnasium.spaces.Discrete(len(self._games[0].actions))
        self._generators = [np.random.default_rng([seed, first + index]) for index in range(count)]
        self._returns, self._lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        self._began = time.time()

    def reset(self, observations: Bytes) -> None:
        """Write the start of a new game of each into `observations` (n, 4, 84, 84)."""
        for index, (game, generator) in enumerate(zip(self._games, self._generators, strict=True)):
            observations[index], self._returns[index], _ = game.begin_game(draw_noops(generator))
        self._lengths[:] = 0

    def step(self, actions: NDArray[Any], observations: Bytes) -> Outcome:
        """Play `actions` (n,) and write what is seen then; where a life ended that is the first of the next."""
        results = [self._advance(index, int(action), observations[index]) for index, action in enumerate(actions)]
        rewards, dones, infos = zip(*results, strict=True)
        return np.array(rewards, dtype=np.float32), np.array(dones), list(infos)

    def close(self) -> None:
        """Hand the games to whoever plays next."""
        GAMES.give_back(self._id, self._games)
        self._games = []

    def _advance(self, index: int, action: int, seen: Bytes) -> tuple[float, bool, dict[str, Any]]:
        game, info = self._games[index], {"TimeLimit.truncated": False}
        observation, reward, ended = game.step(action)
        self._returns[index] += reward
        self._lengths[index] += 1
        if not ended:
            seen[...] = observation
            return float(np.sign(reward)), False, info
        info["TimeLimit.truncated"] = game.truncated
        if game.over:
            self._report(index, info)
        seen[...], gained, over = game.begin_life(draw_noops(self._generators[index]))
        self._returns[index] += gained
        if over:  # the last life ended on the way to the next
            self._report(index, info)
        return float(np.sign(reward)), True, info | {"terminal_observation": observation}

    def _report(self, index: int, info: dict[str, Any]) -> None:
        elapsed = time.time() - self._began
        info["episode"] = {"r": float(self._returns[index]), "l": int(self._lengths[index]), "t": elapsed}
        self._returns[index], self._lengths[index] = 0.0, 0


def view_frames(shared: Shared) -> Bytes:
    """Shared bytes as observations (n, 4, 84, 84) of all games of a run."""
    return np.frombuffer(shared, dtype=np.uint8).reshape(-1, STACK, SIDE, SIDE)  # type: ignore[call-overload, no-any-return]


def serve_games(connection: Connection, environment: Environment, part: range, seed: int, shared: Shared) -> None:
    """Be a process that steps the games `part`; what they show it writes into `shared`.

    It tells its action space, answers None with a reset and actions with a step, and the end of the connection with
    its own.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # they may reach the whole group; the parent decides
        signal.signal(number, signal.SIG_IGN)
    games = Games(environment, len(part), seed, first=part.start)
    observations = view_frames(shared)[part.start : part.stop]
    try:
        connection.send(games.actions)
        while True:
            actions = connection.recv()
            if actions is None:
                games.reset(observations)
                connection.send(None)
            else:
                connection.send(games.step(actions, observations))
    except (EOFError, OSError):
        games.close()
