"""What stable-baselines3 trains on: its own vector environments, and Atari games without their wrappers."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from quarl_bench.environments.atari.bands import SIDE, Bytes
from quarl_bench.environments.atari.games import STACK
from quarl_bench.environments.registry import LIBRARIES, Environment, make_environment
from quarl_bench.training.sb3.games import Games

IMAGES = gymnasium.spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)  # what training sees of a game


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
        """Raise NotImplementedError: the batch has no environments of its own whose attributes could be set."""
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
    """Atari games of one training run, stepped in this process."""

    def __init__(self, environment: Environment, count: int, seed: int) -> None:
        self._games = Games(environment, count, seed)
        super().__init__(count, IMAGES, self._games.actions)
        self._actions: NDArray[Any] = np.zeros(count, dtype=np.int64)

    def reset(self) -> VecEnvObs:
        """The start of a new game in every environment."""
        observations = self._make_room()
        self._games.reset(observations)
        return observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Keep the actions (n,) until `step_wait` plays them."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every game; where a life ended the observation is the first of the next."""
        observations = self._make_room()
        return observations, *self._games.step(self._actions, observations)

    def close(self) -> None:
        """Hand the games to whoever plays next."""
        self._games.close()

    def _make_room(self) -> Bytes:
        return np.empty((self.num_envs, *IMAGES.shape), dtype=np.uint8)
