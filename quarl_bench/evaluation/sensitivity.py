"""Which layer a policy's rounding error comes from: every layer rounded alone, the others left as they are."""

from dataclasses import dataclass, replace

import numpy as np

from quarl_bench.errors import QuantizationError
from quarl_bench.evaluation.agreement import count_agreement
from quarl_bench.policies.policy import PolicyNet, States
from quarl_bench.quantization.net import Floats, Net
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Family, Granularity, Scheme
from quarl_bench.quantization.weight_statistics import measure_spread


@dataclass(frozen=True)
class Sensitivity:
    """What rounding one layer's weights does to the policy.

    `error` is ||y - y'|| / ||y|| of its outputs y over the observations, with one scale for the layer's tensor;
    `error_per_channel` the same with a scale per output channel. `agreement` is the share of observations with the same
    action (continuous ones: within 1% of their range), for one scale. `reach` is the range of the layer's weights in
    their standard deviations.
    """

    name: str
    shape: tuple[int, ...]
    reach: float
    error: float
    error_per_channel: float
    agreement: float


def measure_sensitivity(policy: PolicyNet, bits: int, observations: States) -> tuple[Sensitivity, ...]:
    """The sensitivity of every layer to `bits` bits, in `observations` (n, *shape) that the policy visits."""
    if len(observations) == 0:
        raise QuantizationError("no observations to compare outputs in; pass states that the policy visits")
    scheme = Scheme(Family.WEIGHT_ONLY, bits)
    coarse = _round(policy.net, replace(scheme, granularity=Granularity.PER_TENSOR))
    fine = _round(policy.net, replace(scheme, granularity=Granularity.PER_CHANNEL))
    outputs, actions = policy.outputs(observations), policy.act(observations)
    found = []
    for index, layer in enumerate(policy.net.layers):
        once, apart = (_exchange(policy, index, rounded) for rounded in (coarse, fine))
        spread = measure_spread(layer.weight)
        found.append(
            Sensitivity(
                name=f"layers.{index}",
                shape=layer.weight.shape,
                reach=spread.range / spread.std if spread.std else 0.0,
                error=_compare(outputs, once.outputs(observations)),
                error_per_channel=_compare(outputs, apart.outputs(observations)),
                agreement=count_agreement(once.act(observations), actions, policy.head) / len(actions),
            )
        )
    return tuple(found)


def describe_sensitivity(found: Sensitivity, bits: int) -> str:
    """One line about a layer: shape, range in standard deviations, and the error that its rounding alone causes."""
    shape = "x".join(map(str, found.shape))
    return (
        f"{found.name} ({shape}, weights over {found.reach:.0f} SDs) alone at {bits} bits: outputs off by "
        f"{found.error:.1%}, with a scale per channel {found.error_per_channel:.1%}"
    )


def _round(net: Net, scheme: Scheme) -> Net:
    rounded = quantize_net(net, scheme)
    assert isinstance(rounded, Net)  # noqa: S101 (weight-only schemes stay nets)
    return rounded


def _exchange(policy: PolicyNet, index: int, rounded: Net) -> PolicyNet:
    layers = (*policy.net.layers[:index], rounded.layers[index], *policy.net.layers[index + 1 :])
    return replace(policy, net=replace(policy.net, layers=layers))


def _compare(before: Floats, after: Floats) -> float:
    exact = before.astype(np.float64)  # whose squares a large weight does not overflow
    size = float(np.linalg.norm(exact))
    return float(np.linalg.norm(exact - after)) / size if size else 0.0
