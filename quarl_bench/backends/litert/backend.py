"""The LiteRT backends: .tflite files that run in XNNPACK, and in the runtime's two other sets of kernels."""

from dataclasses import replace
from typing import cast

from quarl_bench.backends.base import Backend
from quarl_bench.backends.litert.dynamic_range import SCHEME, DynamicNet, compute_dynamic
from quarl_bench.backends.litert.flatbuffer import (
    list_weight_types,
    write_dynamic_net,
    write_float_net,
    write_integer_net,
)
from quarl_bench.backends.litert.operands import check_activations
from quarl_bench.backends.litert.runtime import PACKAGE, Kernel, LiteRTRunner, runtime_version
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet

MODEL = "model.tflite"


def write_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The file of a policy; DeploymentError for what the runtime has no kernel for."""
    if isinstance(policy, PolicyNet):
        return {MODEL: write_float_net(policy.net)}
    return {MODEL: write_integer_net(policy.net)}


def refuse_formats(policy: IntegerPolicy | PolicyNet) -> None:
    """DeploymentError for activations that the runtime's kernels do not have."""
    if isinstance(policy, IntegerPolicy):
        check_activations(policy.net)


def refuse_integers(policy: IntegerPolicy | PolicyNet) -> None:
    """DeploymentError for integers: in dynamic range the runtime finds its own, at every call."""
    if isinstance(policy, IntegerPolicy):
        raise DeploymentError(f"litert-dynamic: it quantizes activations itself, at every call; use scheme {SCHEME}")


def write_dynamic_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The file of a policy in dynamic range; DeploymentError for weights that are on no grid."""
    return {MODEL: write_dynamic_net(DynamicNet.of(cast("PolicyNet", policy).net))}  # integers are refused before


LITERT = Backend(
    name="litert",
    aliases=("tflite",),
    model=MODEL,
    distributions=(PACKAGE,),
    kernels=tuple(Kernel),
    float_kernels=tuple(Kernel),
    identify=lambda: (PACKAGE, runtime_version()),
    write=write_model,
    refuse=refuse_formats,
    start=lambda files, kernel: LiteRTRunner(files[MODEL], kernel),
    list_weight_types=lambda files: list_weight_types(files[MODEL]),
)

LITERT_DYNAMIC = replace(
    LITERT,
    name="litert-dynamic",
    aliases=(),
    kernels=(),
    scheme=SCHEME,
    refuse=refuse_integers,
    write=write_dynamic_model,
    compute=compute_dynamic,
)
