"""What a repair tries, from the cheapest remedy to the dearest.

The first rung is schemes that round the same policy in another form: every remedy is an option of the scheme
(docs/quantizer.md), so that what is found has a name that every command, case and backend knows. The others change
integers: biases, the ranges of single layers, the rounding of weights, and all numbers by training. Only what the
target can run is tried.
"""

from dataclasses import dataclass, replace
from itertools import product

from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.registry import find_backend
from quarl_bench.errors import DeploymentError, SpecError
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear
from quarl_bench.quantization.scheme import Family, Granularity, ObserverKind, Scheme

PERCENTILES = (99.9, 99.99)  # of activations: what a rare outlier costs all others
ANY, FPGA = "any", "fpga"
REWRITES, MIXED = "rewrites", "bits"  # rungs whose steps have no name of their own
BIAS, CLIPPED, ROUNDED, DISTILLED = "bias", "clip", "adaround", "distilled"  # rungs that are steps behind a scheme


@dataclass(frozen=True)
class Remedy:
    """One change of a scheme, in words, and whether the policy has a use for it; else the reason."""

    option: str
    words: str
    reason: str = ""


def list_remedies(policy: PolicyNet) -> tuple[Remedy, ...]:
    """The remedies in the order of what they cost; one without a use for this policy has a reason."""
    layers = policy.net.layers
    rectified = any(layer.activation is Activation.RELU for layer in layers[:-1])
    raw = not policy.transform.image and policy.transform.normalization is None
    bare = isinstance(layers[-1], Linear) and layers[-1].activation is Activation.NONE
    return (
        Remedy("pc", "a scale per output channel"),
        Remedy(
            "eq",
            "inputs divided by their ranges",
            "" if raw else "its observations have like ranges already (an image, or normalized)",
        ),
        Remedy("cle", "neurons of equal ranges", "" if rectified else "no hidden layer ends in a ReLU"),
        Remedy("hba", "least sums in the next layer's biases", "" if rectified else "no hidden layer ends in a ReLU"),
        Remedy("acc", "outputs as 32-bit sums", "" if bare else "its last layer is no plain sum"),
        Remedy("pct", "ranges by percentile"),
        Remedy("mse", "ranges of least squared error"),
    )


def list_forms(scheme: Scheme, policy: PolicyNet) -> tuple[Scheme, ...]:
    """`scheme`, and it with every combination of the remedies of form that this policy has a use for.

    SpecError for a scheme without remedies: floats, one that is trained, or one with options, which are what is
    searched.
    """
    if scheme.family is not Family.INTEGER or scheme.name != f"int{scheme.bit_width}":
        raise SpecError(f"scheme {scheme.name!r}: repair takes int<bits> without options, and finds the options")
    useful = {remedy.option for remedy in list_remedies(policy) if not remedy.reason}
    dense = any(isinstance(layer, Linear) for layer in policy.net.layers)  # convolutions have a scale per channel
    granularities = (None, Granularity.PER_CHANNEL) if dense else (None,)
    inputs, wide = ((False, True) if option in useful else (False,) for option in ("eq", "acc"))
    layers = ((False, False), (True, False), (True, True)) if "cle" in useful else ((False, False),)
    return tuple(
        replace(
            scheme,
            granularity=granularity,
            equalized_inputs=divided,
            equalized_layers=equalized,
            absorbed_biases=absorbed,
            wide_outputs=sums,
        )
        for granularity, divided, (equalized, absorbed), sums in product(granularities, inputs, layers, wide)
    )


def list_ranges(form: Scheme) -> tuple[Scheme, ...]:
    """`form` with every other choice of ranges."""
    shares = (replace(form, observer=ObserverKind.PERCENTILE, percentile=share) for share in PERCENTILES)
    return (*shares, replace(form, observer=ObserverKind.MEAN_SQUARE))


def find_unfit(policy: IntegerPolicy, target: str) -> str:
    """Why `target` (any, fpga, or a backend) has no form for `policy`; empty where it has one.

    DeploymentError for an unknown target, MissingExtra where a backend's writer is not installed.
    """
    if target == ANY:
        return ""
    try:
        backend = None if target == FPGA else find_backend(target)
    except DeploymentError as error:
        raise DeploymentError(f"target {target!r}: {error}; or {FPGA}, or {ANY}") from error
    try:
        if backend is None:
            split(policy.net)
        else:
            backend.make_files(backend.renumber(policy))
    except DeploymentError as error:
        return str(error)
    return ""
