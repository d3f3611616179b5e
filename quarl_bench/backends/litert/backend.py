"""The LiteRT backends: .tflite files that run in XNNPACK, and in the runtime's two other sets of kernels."""

from dataclasses import replace

from quarl_bench.backends.base import Backend
from quarl_bench.backends.litert.dynamic_range import SCHEME, DynamicNet, compute_dynamic
from quarl_bench.backends.litert.flatbuffer import (
    list_weight_types,
    write_dynamic_net,
    write_float_net,
    write_integer_net,
)
from quarl_bench.backends.litert.runtime import PACKAGE, Kernel, LiteRTRunner, runtime_version
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.quantization.requantize import Requantization

MODEL = "model.tflite"
EXACT = (Requantization.FP32_RNE, Requantization.THRESHOLDS)  # two ways to the numbers of the default kernel


def write_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The file of a policy; DeploymentError for what the runtime has no kernel for."""
    if isinstance(policy, PolicyNet):
        return {MODEL: write_float_net(policy.net)}
    if policy.net.requantization not in EXACT:
        raise DeploymentError(
            f"litert: its default kernel requantizes as fp32_rne, not as {policy.net.requantization}; "
            "use IntegerNet.with_requantization"
        )
    return {MODEL: write_integer_net(policy.net)}


def write_dynamic_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The file of a policy in dynamic range; DeploymentError for weights that are on no grid, and for integers."""
    if not isinstance(policy, PolicyNet):
        raise DeploymentError(f"litert-dynamic: it quantizes activations itself, at every call; use scheme {SCHEME}")
    return {MODEL: write_dynamic_net(DynamicNet.of(policy.net))}


LITERT = Backend(
    name="litert",
    model=MODEL,
    kernels=tuple(Kernel),
    float_kernels=tuple(Kernel),
    identify=lambda: (PACKAGE, runtime_version()),
    write=write_model,
    start=lambda files, kernel: LiteRTRunner(files[MODEL], kernel),
    list_weight_types=lambda files: list_weight_types(files[MODEL]),
)

LITERT_DYNAMIC = replace(LITERT, name="litert-dynamic", kernels=(), write=write_dynamic_model, compute=compute_dynamic)
