"""The task that actors play: its ends, and one environment that starts over by itself."""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from quarl_bench.actorq.settings import RunSettings
from quarl_bench.environments.registry import Environment, find_environment, make_environment
from quarl_bench.errors import SpecError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.quantization.net import Floats


@dataclass(frozen=True, eq=False)
class ActorTask:
    """An environment as a learner sees it: the widths of observation and output, and how outputs become actions."""

    environment: Environment
    transform: ObservationTransform
    head: ActionHead
    outputs: int  # number of actions, or of their dimensions

    @property
    def inputs(self) -> int:
        """Values of one observation as the net reads it, after the transform."""
        return int(self.transform.input_shape[0])


def open_task(settings: RunSettings) -> ActorTask:
    """The task of a run; SpecError where its algorithm cannot learn it, MissingExtra where it is not installed."""
    algo, environment = settings.algo, settings.environment
    found = find_environment(environment)
    if found.atari:
        raise SpecError(f"{environment}: ActorQ's networks are perceptrons; choose a task without images")
    bare, _ = make_environment(found, shaped=True)
    observed, acted = bare.observation_space, bare.action_space
    bare.close()
    if not isinstance(observed, gymnasium.spaces.Box) or len(observed.shape) != 1:
        raise SpecError(f"{environment}: ActorQ needs vectors as observations")
    transform = ObservationTransform(
        observed.shape, normalization=_scale(environment, observed) if settings.scaled else None
    )
    if isinstance(acted, gymnasium.spaces.Discrete):
        if algo == "d4pg":
            raise SpecError(f"{algo} needs continuous actions, {environment} has {acted.n} discrete ones; use dqn")
        return ActorTask(found, transform, ActionHead(HeadKind.ARGMAX), int(acted.n))
    if not isinstance(acted, gymnasium.spaces.Box) or len(acted.shape) != 1:
        raise SpecError(f"{environment}: ActorQ needs one discrete action, or a vector of continuous ones")
    if algo != "d4pg":
        raise SpecError(f"{algo} needs discrete actions, those of {environment} are continuous; use d4pg")
    head = ActionHead(HeadKind.TANH, acted.low.astype(np.float32), acted.high.astype(np.float32))
    return ActorTask(found, transform, head, int(acted.shape[0]))


def _scale(environment: str, observed: gymnasium.spaces.Box) -> Normalization:
    if not observed.is_bounded():
        raise SpecError(f"{environment}: its observations have no bounds to scale them by; leave `scaled` out")
    low, high = observed.low.astype(np.float64), observed.high.astype(np.float64)
    return Normalization((low + high) / 2, ((high - low) / 2) ** 2)


class Player:
    """One environment, without wrappers, that begins its next episode by itself."""

    def __init__(self, environment: Environment, generator: np.random.Generator) -> None:
        self._bare, self._limit = make_environment(environment, shaped=True)
        self._discrete = isinstance(self._bare.action_space, gymnasium.spaces.Discrete)
        self.observation = self._reset(int(generator.integers(2**31)))
        self.returns: list[float] = []  # of finished episodes

    def step(self, action: Any) -> tuple[Floats, float, bool, bool]:
        """Observation behind the step, reward, terminated, and whether the episode is over: then a new one begins."""
        observation, reward, terminated, truncated, _ = self._bare.step(int(action) if self._discrete else action)
        after = np.asarray(observation, dtype=np.float32)
        self._steps += 1
        self._return += float(reward)
        over = bool(terminated or truncated or self._steps >= self._limit)
        self.observation = after
        if over:
            self.returns.append(self._return)
            self.observation = self._reset(None)
        return after, float(reward), bool(terminated), over

    def close(self) -> None:
        """Close the gymnasium environment; the object plays no more after this."""
        self._bare.close()

    def _reset(self, seed: int | None) -> Floats:
        self._steps, self._return = 0, 0.0
        return np.asarray(self._bare.reset(seed=seed)[0], dtype=np.float32)
