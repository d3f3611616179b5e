"""A policy in its three numeric forms; each is the whole map from raw observation to action."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError, QuantizationError
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.quantization.equalization import find_input_ranges, scale_inputs
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats, Net, Outputs
from quarl_bench.quantization.ptq import quantize_net, rewrite
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme

Observations = NDArray[Any]
Actions = NDArray[np.int64] | Floats


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


@dataclass(frozen=True, eq=False)
class Policy:
    """Observation transform, net and action head; frozen, and free of the framework that trained it."""

    transform: ObservationTransform
    net: Forward
    head: ActionHead

    def __post_init__(self) -> None:
        if self.transform.input_shape != self.net.input_shape:
            raise PolicyError(f"a net of input {self.net.input_shape} for observations of {self.transform.input_shape}")
        self.head.check_outputs(self.net.outputs)

    def outputs(self, observations: Observations) -> Outputs:
        """What the net says: logits, values or means (n, outputs)."""
        return self.net.forward(self.transform.apply(observations))

    def act(self, observations: Observations) -> Actions:
        """Deterministic actions: indices (n,) or values (n, actions). PolicyError for a wrong shape or dtype."""
        return self.head.act(self.outputs(observations))


@dataclass(frozen=True, eq=False)
class PolicyNet(Policy):
    """The portable form: the observation transform, a net of fp32 weights, and the action head."""

    net: Net

    def quantize(self, scheme: Scheme, observations: Observations | None = None) -> "Policy":
        """This policy under `scheme`, calibrated on raw `observations` in the order in which it visited them.

        Weight-only schemes give a PolicyNet with rounded weights, int<n> a QuantizedPolicy.
        """
        policy = self._equalize_inputs(scheme, observations) if scheme.equalized_inputs else self
        inputs = None if observations is None else policy.transform.apply(observations)
        net = quantize_net(policy.net, scheme, inputs)
        if isinstance(net, QuantizedNet):
            return QuantizedPolicy(policy.transform, net, self.head)
        return PolicyNet(policy.transform, net, self.head)

    def rewrite(self, scheme: Scheme, observations: Observations | None = None) -> "PolicyNet":
        """This policy, the same fp32 function, in the form that `quantize` rounds."""
        policy = self._equalize_inputs(scheme, observations) if scheme.equalized_inputs else self
        return PolicyNet(policy.transform, rewrite(policy.net, scheme), policy.head)

    def _equalize_inputs(self, scheme: Scheme, observations: Observations | None) -> "PolicyNet":
        """The same policy with every feature divided by its range, which the first layer takes back."""
        if observations is None or len(observations) == 0:
            raise QuantizationError(
                f"{scheme.name} needs the inputs' ranges; pass observations of the policy's rollouts"
            )
        ranges = find_input_ranges(self.transform.apply(observations), scheme.observer, scheme.percentile)
        return PolicyNet(self.transform.divide(ranges), scale_inputs(self.net, ranges), self.head)


@dataclass(frozen=True, eq=False)
class QuantizedPolicy(Policy):
    """Integer parameters, fake-quantized forward in float32."""

    net: QuantizedNet

    def to_integer(self, requantization: Requantization = Requantization.FP32_RNE) -> "IntegerPolicy":
        """The same policy, executed on integers."""
        return IntegerPolicy(self.transform, IntegerNet.from_quantized(self.net, requantization), self.head)


@dataclass(frozen=True, eq=False)
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
