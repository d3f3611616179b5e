"""How a batch of episodes chooses its actions: deterministically, by sampling, or with noise on the net's inputs."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.noise import GumbelNoise, InputNoise
from quarl_bench.policies.policy import Policy


class Acting(Protocol):
    """The actions of several policies in the states of one batch of episodes."""

    def act(self, observations: NDArray[Any], active: NDArray[np.intp]) -> list[NDArray[Any]]:
        """Each policy's actions (n, ...) for the observations (n, ...) of the episodes `active` (n,)."""


def begin_acting(
    policies: Sequence[Policy], environment: Environment, seeds: Sequence[int], *, sampled: bool, sigma: float
) -> Acting:
    """For the episodes of these environment seeds; PolicyError for noise of no size, or on sampled actions."""
    if not sigma >= 0:
        raise PolicyError(f"noise of SD {sigma} on the inputs: it takes an SD of at least 0")
    if sampled and sigma:
        raise PolicyError("noise on the inputs is for deterministic actions; leave out one of the two")
    if sampled:
        return Sampled(policies, GumbelNoise(seeds, policies[0].net.outputs))
    if sigma:
        shape = policies[0].net.input_shape
        if len(shape) != 1:
            raise PolicyError(f"noise on inputs of shape {shape}: it is for vectors of features")
        return Disturbed(policies, InputNoise(seeds, shape[0], sigma))
    return Remembered(policies) if environment.atari else Deterministic(policies)


@dataclass(frozen=True)
class Deterministic:
    """The likeliest, or mean, action."""

    policies: Sequence[Policy]

    def act(self, observations: NDArray[Any], active: NDArray[np.intp]) -> list[NDArray[Any]]:  # noqa: ARG002
        """What every policy does."""
        return [policy.act(observations) for policy in self.policies]


@dataclass(frozen=True)
class Remembered:
    """The same, looked up by the hash of the image.

    Argmax on Breakout ends in a circle of some twenty images, until the game is cut off after 27,000 steps: no image is
    looked at twice.
    """

    policies: Sequence[Policy]
    known: dict[bytes, tuple[Any, ...]] = field(default_factory=dict)

    def act(self, observations: NDArray[Any], active: NDArray[np.intp]) -> list[NDArray[Any]]:  # noqa: ARG002
        """What every policy does, asked in states that are new."""
        names = [hashlib.sha256(observation).digest() for observation in observations]
        fresh = {name: index for index, name in enumerate(names) if name not in self.known}
        if fresh:
            asked = observations[list(fresh.values())]
            found = zip(*(policy.act(asked) for policy in self.policies), strict=True)
            self.known.update(zip(fresh, found, strict=True))
        return [np.array(actions) for actions in zip(*(self.known[name] for name in names), strict=True)]


@dataclass(frozen=True)
class Sampled:
    """A draw from the softmax of the outputs, with the same random numbers for every policy."""

    policies: Sequence[Policy]
    noise: GumbelNoise

    def act(self, observations: NDArray[Any], active: NDArray[np.intp]) -> list[NDArray[Any]]:
        """What every policy draws."""
        drawn = self.noise.draw(active)
        return [(policy.outputs(observations) + drawn).argmax(axis=1) for policy in self.policies]


@dataclass(frozen=True)
class Disturbed:
    """Deterministic actions for noisy inputs (LQCC, section 3.3): net input + sigma * N(0, 1)."""

    policies: Sequence[Policy]
    noise: InputNoise

    def act(self, observations: NDArray[Any], active: NDArray[np.intp]) -> list[NDArray[Any]]:
        """What every policy does where it sees the same noise."""
        drawn = self.noise.draw(active)
        return [
            policy.head.act(policy.net.forward(policy.transform.apply(observations) + drawn))
            for policy in self.policies
        ]
