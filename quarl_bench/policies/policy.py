"""A policy in its three numeric forms; each is the whole map from raw observation to action."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError, QuantizationError
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.quantization.equalization import find_input_ranges, scale_inputs
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats, Net, Outputs
from quarl_bench.quantization.ptq import quantize_net, rewrite
from quarl_bench.quantization.recurrent.cells import NO_STATE, State, take
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme

Observations = NDArray[Any]  # (n, *shape), or with the masks of their actions (`masks`)
Actions = NDArray[np.int64] | Floats


@dataclass(frozen=True, eq=False)
class Visited:
    """What a recurrent policy visits: observations (n, ...), and its state, arrays (n, width), in front of each."""

    observations: Observations
    state: State

    def __len__(self) -> int:
        return len(self.observations)

    def __getitem__(self, rows: Any) -> "Visited":
        return Visited(self.observations[rows], take(self.state, rows))

    @staticmethod
    def join(parts: "Sequence[Visited]") -> "Visited":
        """All of them, one after the other."""
        state = tuple(np.concatenate(arrays) for arrays in zip(*(part.state for part in parts), strict=True))
        return Visited(np.concatenate([part.observations for part in parts]), state)


States = Observations | Visited  # observations alone where a policy has no state


class Forward(Protocol):
    """Whatever computes a policy's outputs: a net, its quantized or integer form, a model in a runtime."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of an input without the batch axis."""

    @property
    def outputs(self) -> int:
        """Values that the net gives for one observation, before the head turns them into an action."""

    def forward(self, x: Floats) -> Outputs:
        """Outputs (n, outputs) for inputs (n, *input_shape)."""


class Stateful(Forward, Protocol):
    """The same of a recurrent policy: it answers one step at a time, and its state goes in and comes out."""

    def initial_state(self, count: int) -> State:
        """The state of `count` episodes that begin: arrays (count, width)."""

    def adopt(self, state: State) -> State:
        """A state of the fp32 policy as this one has it."""

    def step(self, x: Floats, state: State) -> tuple[Outputs, State]:
        """Outputs (n, outputs) and the next state, for inputs (n, *input_shape) and the state."""


@dataclass(frozen=True, eq=False, repr=False)
class Policy:
    """Observation transform, net and action head; frozen, and free of the framework that trained it.

    A recurrent policy has a state beside: `initial_state` begins an episode, and `act` takes and gives it.
    """

    transform: ObservationTransform
    net: Forward
    head: ActionHead

    def __post_init__(self) -> None:
        if self.transform.input_shape != self.net.input_shape:
            raise PolicyError(f"a net of input {self.net.input_shape} for observations of {self.transform.input_shape}")
        self.head.check_outputs(self.net.outputs)
        if self.head.masked and self.recurrent:
            raise PolicyError("masks of actions are not for policies with a state; play it without masks")

    def __repr__(self) -> str:
        """What it reads, gives and is, without its weights."""
        inputs = " x ".join(map(str, self.transform.input_shape))
        return f"{type(self).__name__}({inputs} -> {self.net.outputs}, {self.head.kind})"

    @cached_property
    def recurrent(self) -> bool:
        """Whether it has a state; a net that says nothing of it has none."""
        return bool(getattr(self.net, "recurrent", False))

    def initial_state(self, count: int) -> State:
        """The state in which `count` episodes begin, arrays (count, width); empty where the policy has none."""
        return self._stateful.initial_state(count) if self.recurrent else NO_STATE

    def outputs(self, observations: States) -> Outputs:
        """What the net says: logits, values or means (n, outputs). What is `Visited` has the fp32 policy's states."""
        if isinstance(observations, Visited):
            state = self._stateful.adopt(observations.state)
            return self._stateful.step(self.transform.apply(observations.observations), state)[0]
        return self.net.forward(self.transform.apply(observations))

    @overload
    def act(self, observations: States) -> Actions: ...

    @overload
    def act(self, observations: Observations, state: State) -> tuple[Actions, State]: ...

    def act(self, observations: States, state: State | None = None) -> Actions | tuple[Actions, State]:
        """Deterministic actions: indices (n,) or (n, parts), or values (n, actions), within the observations' masks.

        PolicyError for a wrong shape or dtype.

        Given the state of a recurrent policy, arrays (n, width), also the next state.
        """
        if state is None:
            return self.head.act(self.outputs(observations), read_masks(observations))
        assert not isinstance(observations, Visited)  # noqa: S101 (for the type checker: overloads say so)
        outputs, state = self._stateful.step(self.transform.apply(observations), state)
        return self.head.act(outputs), state

    @property
    def _stateful(self) -> Stateful:
        if not self.recurrent:
            raise PolicyError("a policy without a state; call act(observations)")
        return cast("Stateful", self.net)


@dataclass(frozen=True, eq=False, repr=False)
class PolicyNet(Policy):
    """The portable form: the observation transform, a net of fp32 weights, and the action head."""

    net: Net

    def quantize(self, scheme: Scheme, observations: States | None = None) -> "Policy":
        """This policy under `scheme`, calibrated on raw `observations` in the order in which it visited them.

        Those of a recurrent policy are `Visited`.

        Weight-only schemes give a PolicyNet with rounded weights, int<n> a QuantizedPolicy.
        """
        policy = self._equalize_inputs(scheme, observations) if scheme.equalized_inputs else self
        seen, state = (
            (observations.observations, observations.state)
            if isinstance(observations, Visited)
            else (observations, None)
        )
        inputs = None if seen is None else policy.transform.apply(seen)
        net = quantize_net(policy.net, scheme, inputs, state)
        if isinstance(net, QuantizedNet):
            return QuantizedPolicy(policy.transform, net, self.head)
        return PolicyNet(policy.transform, net, self.head)

    def rewrite(self, scheme: Scheme, observations: States | None = None) -> "PolicyNet":
        """This policy, the same fp32 function, in the form that `quantize` rounds."""
        policy = self._equalize_inputs(scheme, observations) if scheme.equalized_inputs else self
        inputs = None
        if scheme.absorbed_biases and observations is not None and not isinstance(observations, Visited):
            inputs = policy.transform.apply(observations)
        return PolicyNet(policy.transform, rewrite(policy.net, scheme, inputs), policy.head)

    def _equalize_inputs(self, scheme: Scheme, observations: States | None) -> "PolicyNet":
        """The same policy with every feature divided by its range, which the first layer takes back."""
        if observations is None or len(observations) == 0:
            raise QuantizationError(
                f"{scheme.name} needs the inputs' ranges; pass observations of the policy's rollouts"
            )
        seen = observations.observations if isinstance(observations, Visited) else observations
        ranges = find_input_ranges(self.transform.apply(seen), scheme.observer, scheme.percentile)
        return PolicyNet(self.transform.divide(ranges), scale_inputs(self.net, ranges), self.head)


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedPolicy(Policy):
    """Integer parameters, fake-quantized forward in float32."""

    net: QuantizedNet

    def to_integer(self, requantization: Requantization = Requantization.FP32_RNE) -> "IntegerPolicy":
        """The same policy, executed on integers."""
        return IntegerPolicy(self.transform, IntegerNet.from_quantized(self.net, requantization), self.head)


@dataclass(frozen=True, eq=False, repr=False)
class IntegerPolicy(Policy):
    """Integers only between the quantization of the input and the action: what is deployed."""

    net: IntegerNet


def deployable(policy: Policy) -> Policy:
    """The form of a policy that runs outside a simulation: integers for int<n>, itself otherwise."""
    return policy.to_integer() if isinstance(policy, QuantizedPolicy) else policy


def require_integer(policy: Policy) -> IntegerPolicy:
    """`policy` as an IntegerPolicy; QuantizationError for weight-only schemes, whose chain ends before integers."""
    if isinstance(policy, QuantizedPolicy):
        return policy.to_integer()
    if isinstance(policy, IntegerPolicy):
        return policy
    raise QuantizationError("weight-only and floating point schemes have no integer form; use an int<bits> scheme")
