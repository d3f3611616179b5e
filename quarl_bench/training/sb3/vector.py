"""What stable-baselines3 trains on: its own vector environments, and Atari games without their wrappers."""

import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from quarl_bench.environments.atari import GAMES, STACK, draw_noops
from quarl_bench.environments.registry import LIBRARIES, Environment, make_environment
from quarl_bench.environments.screens import SIDE


def make_vector(environment: Environment, count: int, seed: int) -> VecEnv:
    """`count` environments to train on, stepped in this process."""
    if environment.atari:
        return GameVector(environment, count, seed)
    # Trained policies are published of tasks that Gymnasium brings: these stay as it makes them.
    ours = environment.extra in LIBRARIES or environment.time_feature
    # By its name, stable-baselines3 would make an environment that can be rendered. LunarLander then keeps hundreds of
    # particles of its engines that nobody looks at: equal in every number, and several times slower.
    make = partial(_make_limited, environment) if ours else partial(gymnasium.make, environment.id)
    vector: VecEnv = make_vec_env(make, count, seed=seed)
    return vector


def _make_limited(environment: Environment) -> gymnasium.Env[Any, Any]:
    """As evaluation steps it, quiet and with the time feature, and cut at its step limit; rewarded to be learned."""
    bare, limit = make_environment(environment, shaped=True)
    return gymnasium.wrappers.TimeLimit(bare, limit)


class BareVector(VecEnv):
    """Environments without attributes, methods and wrappers that could be reached from outside."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of this vector, once per environment (`render_mode` is all that is asked)."""
        return [getattr(self, attr_name, None) for _ in self._list(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Does nothing: games have no attributes to set."""
        raise NotImplementedError(attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Raise NotImplementedError: the batch has no environments of its own whose methods could be called."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: VecEnvIndices = None) -> list[bool]:  # noqa: ARG002
        """False for every game: no wrapper of Gymnasium is around it."""
        return [False for _ in self._list(indices)]

    def _list(self, indices: VecEnvIndices) -> Iterable[int]:
        return self._get_indices(indices)


class GameVector(BareVector):
    """Atari games as training sees them: an episode is one life, and a reward is its sign.

    `infos` carry what Monitor adds: return and length of whole games, unclipped. `first` is the number of the first
    game where these are some of a run's games.
    """

    def __init__(self, environment: Environment, count: int, seed: int, *, first: int = 0) -> None:
        self._id = environment.id
        self._games = GAMES.borrow(self._id, count)
        super().__init__(
            count,
            gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8),
            gymnasium.spaces.Discrete(len(self._games[0].actions)),
        )
        self._generators = [np.random.default_rng([seed, first + index]) for index in range(count)]
        self._returns, self._lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
        self._actions: NDArray[Any] = np.zeros(count, dtype=np.int64)
        self._began = time.time()

    def reset(self) -> VecEnvObs:
        """The start of a new game in every environment."""
        starts = [
            game.begin_game(draw_noops(generator))
            for game, generator in zip(self._games, self._generators, strict=True)
        ]
        self._returns[:] = [reward for _, reward, _ in starts]
        self._lengths[:] = 0
        return np.stack([observation for observation, _, _ in starts])

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions (n,) until `step_wait` plays them."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every game; where a life ended the observation is the first of the next."""
        results = [self._advance(index, int(action)) for index, action in enumerate(self._actions)]
        observations, rewards, dones, infos = zip(*results, strict=True)
        return np.stack(observations), np.array(rewards, dtype=np.float32), np.array(dones), list(infos)

    def close(self) -> None:
        """Hand the games to whoever plays next."""
        GAMES.give_back(self._id, self._games)
        self._games = []

    def _advance(self, index: int, action: int) -> tuple[NDArray[Any], float, bool, dict[str, Any]]:
        game, info = self._games[index], {"TimeLimit.truncated": False}
        observation, reward, ended = game.step(action)
        self._returns[index] += reward
        self._lengths[index] += 1
        if not ended:
            return observation, float(np.sign(reward)), False, info
        info["TimeLimit.truncated"] = game.truncated
        if game.over:
            self._report(index, info)
        first, gained, over = game.begin_life(draw_noops(self._generators[index]))
        self._returns[index] += gained
        if over:  # the last life ended on the way to the next
            self._report(index, info)
        return first, float(np.sign(reward)), True, info | {"terminal_observation": observation}

    def _report(self, index: int, info: dict[str, Any]) -> None:
        elapsed = time.time() - self._began
        info["episode"] = {"r": float(self._returns[index]), "l": int(self._lengths[index]), "t": elapsed}
        self._returns[index], self._lengths[index] = 0.0, 0
