"""Atari games as a batch of episodes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.atari.games import GAMES, count_noops
from quarl_bench.environments.classic_control import Bools, Rewards
from quarl_bench.environments.registry import Environment


class GameEpisodes:
    """An Atari game per seed, played through all its lives to its end, or to that of the environment's patience.

    Rewards are not clipped.
    """

    def __init__(self, environment: Environment, seeds: Sequence[int]) -> None:
        self._id = environment.id
        self._noops = [count_noops(int(seed)) for seed in seeds]
        self._games = GAMES.borrow(self._id, len(seeds))
        self._owed = np.zeros(len(seeds), dtype=np.float64)  # scored before the first action of the game
        self._patience = math.inf if environment.patience is None else environment.patience
        self._idle = [0] * len(seeds)  # steps since something was scored or a life was lost

    def reset(self) -> NDArray[Any]:
        """Start every game; the first observations (seeds, 4, 84, 84)."""
        starts = [game.begin_game(noops) for game, noops in zip(self._games, self._noops, strict=True)]
        observations, rewards, _ = zip(*starts, strict=True)
        self._owed[:] = rewards
        return np.stack(observations)

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        """Four frames of the games `active`, those that ran before and have not ended, in order."""
        results = [self._play(i, action) for i, action in zip(active, actions.tolist(), strict=True)]
        observations, rewards, done = zip(*results, strict=True)
        gained = np.array(rewards, dtype=np.float64) + self._owed[active]
        self._owed[active] = 0.0
        return np.stack(observations), gained, np.array(done, dtype=np.bool_)

    def name_state(self, index: int) -> bytes | None:
        """What decides how the game `index` goes on, as a hash; None for most of its steps, see `Game.name_state`."""
        name = self._games[index].name_state()
        return name if name is None or self._patience == math.inf else name + self._idle[index].to_bytes(4, "big")

    def close(self) -> None:
        """Give the games back."""
        GAMES.give_back(self._id, self._games)
        self._games = []

    def _play(self, index: int, action: int) -> tuple[NDArray[Any], float, bool]:
        game = self._games[index]
        observation, reward, ended = game.step(action)
        self._idle[index] = 0 if ended or reward else self._idle[index] + 1
        if ended and not game.over:  # a life was lost, the game goes on
            observation, gained, over = game.begin_life(self._noops[index])
            return observation, reward + gained, over
        return observation, reward, game.over or self._idle[index] >= self._patience
