"""What a repair tries, from the cheapest remedy to the dearest: schemes that round the same policy in another form.

Every remedy is an option of the scheme (docs/quantizer.md), so that what a repair finds has a name that every command,
case and backend knows. The fp32 function is the same, no weight is trained, and no return is looked at to make them.
"""

from dataclasses import dataclass, replace
from itertools import product

from quarl_bench.errors import SpecError
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.net import Activation
from quarl_bench.quantization.scheme import Family, Granularity, ObserverKind, Scheme

PERCENTILES = (99.9, 99.99)  # of activations: what a rare outlier costs all others


@dataclass(frozen=True)
class Remedy:
    """One change of a scheme, in words, and whether the policy has a use for it; else the reason."""

    option: str
    words: str
    reason: str = ""


def list_remedies(policy: PolicyNet) -> tuple[Remedy, ...]:
    """The remedies in the order of what they cost; one without a use for this policy has a reason."""
    hidden = policy.net.layers[:-1]
    rectified = any(layer.activation is Activation.RELU for layer in hidden)
    ranges = (
        ""
        if not policy.transform.image and policy.transform.normalization is None
        else ("its observations have like ranges already (an image, or normalized)")
    )
    return (
        Remedy("pc", "a scale per output channel"),
        Remedy("pct", "ranges by percentile"),
        Remedy("eq", "inputs divided by their ranges", ranges),
        Remedy("cle", "neurons of equal ranges", "" if rectified else "no hidden layer ends in a ReLU"),
    )  # fmt: skip


def list_candidates(scheme: Scheme, policy: PolicyNet) -> tuple[Scheme, ...]:
    """`scheme`, and it with every combination of remedies that this policy has a use for.

    SpecError for a scheme without remedies: floats, one that is trained, or one with options, which are what is
    searched.
    """
    if scheme.family is not Family.INTEGER or scheme.name != f"int{scheme.bit_width}":
        raise SpecError(f"scheme {scheme.name!r}: repair takes int<bits> without options, and finds the options")
    useful = {remedy.option for remedy in list_remedies(policy) if not remedy.reason}
    forms = product(
        (None, Granularity.PER_CHANNEL),
        (None, *PERCENTILES),
        (False, True) if "eq" in useful else (False,),
        (False, True) if "cle" in useful else (False,),
    )
    return tuple(_apply(scheme, *form) for form in forms)


def _apply(
    scheme: Scheme, granularity: Granularity | None, percentile: float | None, inputs: bool, layers: bool
) -> Scheme:
    found = replace(scheme, granularity=granularity, equalized_inputs=inputs, equalized_layers=layers)
    if percentile is None:
        return found
    return replace(found, observer=ObserverKind.PERCENTILE, percentile=percentile)
