"""How actions are chosen: deterministically, by sampling, or with noise on the net's inputs."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.noise import GumbelNoise, InputNoise
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.policy import Policy
from quarl_bench.quantization.recurrent.cells import State, take


class Acting(Protocol):
    """Random numbers for the episodes of one batch, and what policies do with them."""

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> Any:
        """Those of the next step of the episodes `active` (n,), which show `observations` (n, ...).

        (n, ...), or what else every policy that is asked about the step needs; None where that is nothing.
        """

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: Any) -> NDArray[Any]:
        """The actions (n, ...) of `policy` for observations (n, ...) and what was drawn for them."""

    @property
    def stepwise(self) -> bool:
        """Whether policies have to be asked step by step, because of what they remember."""


def begin_acting(
    policy: Policy, environment: Environment, seeds: Sequence[int], *, sampled: bool, sigma: float
) -> Acting:
    """For the episodes of these environment seeds; PolicyError for noise of no size, or on sampled actions."""
    if policy.recurrent and (sampled or sigma or environment.atari):
        what = "sampled actions" if sampled else "noise on the inputs" if sigma else environment.id
        raise PolicyError(f"{what}: not for recurrent policies, which are played deterministically, and not on Atari")
    if not sigma >= 0:
        raise PolicyError(f"noise of SD {sigma} on the inputs: it takes an SD of at least 0")
    if sampled and sigma:
        raise PolicyError("noise on the inputs is for deterministic actions; leave out one of the two")
    if sampled:
        return Sampled(GumbelNoise(seeds, sum(policy.head.list_choices(policy.net.outputs))))
    if sigma:
        shape = policy.net.input_shape
        if len(shape) != 1:
            raise PolicyError(f"noise on inputs of shape {shape}: it is for vectors of features")
        return Disturbed(InputNoise(seeds, shape[0], sigma))
    if policy.recurrent:
        return Recurrent(len(seeds))
    return Remembered() if environment.atari else Deterministic()


@dataclass(frozen=True)
class Deterministic:
    """The likeliest, or mean, action."""

    stepwise: ClassVar = False

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> Any:  # noqa: ARG002
        """Nothing: there is no chance."""
        return None

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: Any) -> NDArray[Any]:  # noqa: ARG002
        """What the policy does."""
        return policy.act(observations)


@dataclass(frozen=True)
class Remembered(Deterministic):
    """The same, looked up by the hash of the image and of its mask, if there is one.

    Argmax on Breakout ends in a circle of some twenty images, until the game is cut off after 27,000 steps: no policy
    looks at an image twice.
    """

    known: dict[tuple[int, bytes], Any] = field(default_factory=dict)

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> NDArray[np.object_]:  # noqa: ARG002
        """The images' hashes, once for all policies."""
        return np.array([hashlib.sha256(observation).digest() for observation in observations], dtype=object)

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: NDArray[np.object_]) -> NDArray[Any]:
        """What the policy does, asked in states that are new."""
        names = [(id(policy), name) for name in drawn]
        fresh = {name: index for index, name in enumerate(names) if name not in self.known}
        if fresh:
            self.known.update(zip(fresh, policy.act(observations[list(fresh.values())]), strict=True))
        return np.array([self.known[name] for name in names])


@dataclass(frozen=True)
class Recurrent:
    """The same of policies with a state, which begins with its episode; each policy asked has a state of its own."""

    count: int  # of episodes
    states: dict[int, State] = field(default_factory=dict)
    stepwise: ClassVar = True

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> NDArray[np.intp]:  # noqa: ARG002
        """Nothing by chance: which episodes these are."""
        return active

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: Any) -> NDArray[Any]:
        """What the policy does, one step on in its episodes `drawn`."""
        actions, behind = policy.act(observations, self.recall(policy, drawn))
        for whole, part in zip(self.states[id(policy)], behind, strict=True):
            whole[drawn] = part
        return actions

    def recall(self, policy: Policy, rows: NDArray[np.intp]) -> State:
        """The state of `policy` in the episodes `rows`."""
        if id(policy) not in self.states:
            self.states[id(policy)] = policy.initial_state(self.count)
        return take(self.states[id(policy)], rows)


@dataclass(frozen=True)
class Sampled:
    """A draw from the softmax of each choice's logits, with the same random numbers for every policy."""

    stepwise: ClassVar = False
    noise: GumbelNoise

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> NDArray[np.float64]:  # noqa: ARG002
        """Gumbel noise (n, sum of choices)."""
        return self.noise.draw(active)

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: Any) -> NDArray[Any]:
        """What the policy draws."""
        return policy.head.pick(policy.head.weigh(policy.outputs(observations), read_masks(observations)) + drawn)


@dataclass(frozen=True)
class Disturbed:
    """Deterministic actions for noisy inputs (LQCC, section 3.3): net input + sigma * N(0, 1)."""

    stepwise: ClassVar = False
    noise: InputNoise

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> NDArray[np.float32]:  # noqa: ARG002
        """Normal noise (n, features)."""
        return self.noise.draw(active)

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: Any) -> NDArray[Any]:
        """What the policy does where it sees the noise."""
        outputs = policy.net.forward(policy.transform.apply(observations) + drawn)
        return policy.head.act(outputs, read_masks(observations))
