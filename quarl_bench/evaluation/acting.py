"""How actions are chosen: deterministically, by sampling, or with noise on the net's inputs."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.noise import GumbelNoise, InputNoise
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.policy import Policy
from quarl_bench.quantization.recurrent.cells import State, take

KNOWN: WeakKeyDictionary[Policy, dict[bytes, Any]] = WeakKeyDictionary()  # what policies do, by the hash of the image


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


@dataclass(frozen=True)
class Way:
    """How episodes are played: deterministically, by sampling, or with noise of SD `sigma` on the net's inputs."""

    sampled: bool = False
    sigma: float = 0.0

    def __post_init__(self) -> None:
        if not self.sigma >= 0:
            raise PolicyError(f"noise of SD {self.sigma} on the inputs: it takes an SD of at least 0")
        if self.sampled and self.sigma:
            raise PolicyError("noise on the inputs is for deterministic actions; leave out one of the two")

    @property
    def noisy(self) -> bool:
        """Whether every environment seed is an episode of its own."""
        return self.sampled or self.sigma > 0


def begin_acting(policy: Policy, environment: Environment, seeds: Sequence[int], ways: Sequence[Way]) -> Acting:
    """For the episodes of these environment seeds, each with its way; PolicyError for noise that the policy cannot see.

    Of Atari, episodes that act by argmax may come first, and sampled ones behind them; others have one way.
    """
    way, first = ways[-1], sum(not way.noisy for way in ways)
    if policy.recurrent and (way.noisy or environment.atari):
        what = "sampled actions" if way.sampled else "noise on the inputs" if way.sigma else environment.id
        raise PolicyError(f"{what}: not for recurrent policies, which are played deterministically, and not on Atari")
    if way.sampled:
        sampled = Sampled(GumbelNoise(seeds[first:], sum(policy.head.list_choices(policy.net.outputs))))
        return Mixed(Remembered(), sampled, first) if first else sampled
    if way.sigma:
        shape = policy.net.input_shape
        if len(shape) != 1:
            raise PolicyError(f"noise on inputs of shape {shape}: it is for vectors of features")
        return Disturbed(InputNoise(seeds, shape[0], way.sigma))
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

    Argmax on Breakout ends in a circle of some twenty images, until the game is cut off after 27,000 steps; an fp32
    policy is calibrated and played, and asked where its schemes play, in the same games: no policy looks at one image
    twice, as long as it lives.
    """

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> NDArray[np.object_]:  # noqa: ARG002
        """The images' hashes, once for all policies."""
        return np.array([hashlib.sha256(observation).digest() for observation in observations], dtype=object)

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: NDArray[np.object_]) -> NDArray[Any]:
        """What the policy does, asked in states that are new."""
        fresh = self.find_fresh(policy, drawn)
        if fresh:
            self.learn(policy, fresh, policy.act(observations[list(fresh.values())]))
        return self.recall(policy, drawn)

    def find_fresh(self, policy: Policy, drawn: Iterable[Any]) -> dict[bytes, int]:
        """The hashes among what was drawn that are new, each with the place of one image that has it."""
        known = KNOWN.setdefault(policy, {})
        hashes = ((name, place) for place, name in enumerate(drawn) if isinstance(name, bytes))
        return {name: place for name, place in hashes if name not in known}

    def learn(self, policy: Policy, fresh: Iterable[bytes], actions: NDArray[Any]) -> None:
        """Keep what the policy does."""
        KNOWN[policy].update(zip(fresh, actions, strict=True))

    def recall(self, policy: Policy, drawn: Iterable[bytes]) -> NDArray[Any]:
        """What the policy does in states that are known."""
        known = KNOWN[policy]
        return np.array([known[name] for name in drawn])


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
class Mixed:
    """Both of Atari's ways in one batch: the first episodes act by argmax, as remembered, the others sample.

    A network is asked once for both: with eight images it takes less time for each than with four.
    """

    stepwise: ClassVar = False
    remembered: Remembered
    sampled: Sampled
    first: int  # episodes that act by argmax

    def draw(self, active: NDArray[np.intp], observations: NDArray[Any]) -> NDArray[np.object_]:
        """For each episode its image's hash, or its Gumbel noise (sum of choices,)."""
        drawn = np.empty(len(active), dtype=object)
        count = int((active < self.first).sum())  # `active` ascends
        drawn[:count] = self.remembered.draw(active[:count], observations[:count])
        if count < len(active):
            noise = self.sampled.draw(active[count:] - self.first, observations[count:])
            for place, row in enumerate(noise, count):
                drawn[place] = row
        return drawn

    def choose(self, policy: Policy, observations: NDArray[Any], drawn: NDArray[np.object_]) -> NDArray[Any]:
        """What the policy does, or draws; `drawn` may be of several steps."""
        by_argmax = np.array([isinstance(one, bytes) for one in drawn])
        fresh = self.remembered.find_fresh(policy, drawn)
        asked = observations[np.array([*fresh.values(), *(~by_argmax).nonzero()[0]], np.intp)]
        actions = np.empty(len(drawn), np.int64)
        if len(asked):
            logits = policy.head.weigh(policy.outputs(asked), read_masks(asked))
            noise = np.zeros(logits.shape)  # none for argmax
            noise[len(fresh) :] = [*drawn[~by_argmax]] or 0
            chosen = policy.head.pick(logits + noise)
            self.remembered.learn(policy, fresh, chosen[: len(fresh)])
            actions[~by_argmax] = chosen[len(fresh) :]
        if by_argmax.any():
            actions[by_argmax] = self.remembered.recall(policy, drawn[by_argmax])
        return actions


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
