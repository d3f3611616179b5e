"""The LiteRT backend: from a policy to an artefact that has already proved itself.

What does not equal its golden pairs is not written.
"""

import platform
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.deploy.artefact import Artefact, Golden, Runtime, write_artefact
from quarl_bench.deploy.deployed import DeployedPolicy, load_artefact, start, verify
from quarl_bench.deploy.flatbuffer import list_weight_types, write_float_net, write_integer_net
from quarl_bench.deploy.runtime import PACKAGE, Kernel, Runner, runtime_version
from quarl_bench.errors import DeploymentError, SpecError
from quarl_bench.policy.policy import IntegerPolicy, Observations, Policy, PolicyNet, deployable
from quarl_bench.quant.affine import Integers
from quarl_bench.quant.integer import IntegerNet
from quarl_bench.quant.requantize import Requantization
from quarl_bench.quant.scheme import Scheme
from quarl_bench.spec import ID_PART

__all__ = ["export_policy", "find_divergence", "load_artefact", "make_golden", "verify"]

GOLDEN_PAIRS = 256
GOLDEN_BYTES = 1 << 20  # of raw observations; fewer pairs when they are images
EXTREMES = (np.inf, -np.inf, 1e30, -1e30, 0.0)  # what saturates must saturate alike everywhere
EXACT = (Requantization.FP32_RNE, Requantization.THRESHOLDS)  # two ways to the numbers of the default kernel


def export_policy(
    policy: Policy, folder: Path, observations: Observations, *, scheme: str, source_sha256: str
) -> DeployedPolicy:
    """Write `policy` to `folder` as a LiteRT artefact, verified in XNNPACK, and return it running.

    int<n> policies become integer files. fp32, fp16 and weight-only ones become float32 files of their rounded weights.
    `observations` (n, *shape) are raw states that the policy visits: the golden pairs are taken from them.
    `scheme` names the quantization and `source_sha256` the stored fp32 policy it began with.
    DeploymentError when the runtime has no kernel for the policy, or computes anything else than it.
    """
    policy = deployable(policy)
    if not isinstance(policy, IntegerPolicy | PolicyNet):
        raise DeploymentError(f"litert: a {type(policy).__name__} cannot be exported; export the policy it came from")
    _check_scheme(scheme, policy)
    if len(observations) == 0:
        raise DeploymentError("litert: no observations for golden pairs; pass states that the policy visits")
    integer = isinstance(policy, IntegerPolicy)
    model = write_integer_net(policy.net) if isinstance(policy, IntegerPolicy) else write_float_net(policy.net)
    artefact = Artefact(
        backend="litert",
        scheme=scheme,
        source_sha256=source_sha256,
        model=model,
        transform=policy.transform,
        head=policy.head,
        input=policy.net.input if isinstance(policy, IntegerPolicy) else None,
        output=policy.net.output if isinstance(policy, IntegerPolicy) else None,
        weight_types=list_weight_types(model),
        parameters=sum(layer.weight.size + layer.bias.size for layer in policy.net.layers),
        runtime=Runtime(PACKAGE, runtime_version(), str(Kernel.XNNPACK), platform.machine()),
        golden=make_golden(policy, _choose(observations, extremes=integer)),
    )
    deployed = start(artefact, Kernel.XNNPACK)
    try:
        verify(deployed)
    except DeploymentError as error:
        raise DeploymentError(f"litert: {error}{_locate(policy, artefact.golden.inputs)}") from error
    write_artefact(artefact, folder)
    return deployed


def make_golden(policy: IntegerPolicy | PolicyNet, observations: Observations) -> Golden:
    """What `policy` does, step by step, for raw observations (n, *shape)."""
    inputs = policy.transform.apply(observations)
    if isinstance(policy, IntegerPolicy):
        q = policy.net.input.quantize(inputs)
        return Golden(
            observations, _channels_last(q.astype(np.int8)), policy.net.run(q).astype(np.int8), policy.act(observations)
        )
    return Golden(observations, _channels_last(inputs), policy.outputs(observations), policy.act(observations))


def find_divergence(net: IntegerNet, q: Integers, kernel: str = Kernel.XNNPACK) -> str | None:
    """Where the runtime first leaves the golden model for input integers (n, *input_shape): layer, element and values.

    The kernels keep no intermediate tensors, so ever longer beginnings of the net are run; None when all agree.
    """
    for index, expected in enumerate(net.trace(q)):
        begin = IntegerNet(net.input_shape, net.input, net.layers[: index + 1], net.requantization)
        got = _run(begin, q, kernel)
        if (got != expected).any():
            first = tuple(int(i) for i in np.argwhere(got != expected)[0])
            values = f"expected {expected[first]}, got {got[first]}"
            return f"layer {index}, element {first[1:]} of pair {first[0]}: {values}"
    return None


def _run(net: IntegerNet, q: Integers, kernel: str) -> Integers:
    inputs = _channels_last(q.astype(np.int8))
    outputs = Runner(write_integer_net(net), kernel).run(inputs).astype(np.int64)
    return np.moveaxis(outputs, -1, 1) if outputs.ndim == 4 else outputs


def _locate(policy: IntegerPolicy | PolicyNet, inputs: NDArray[Any]) -> str:
    if not isinstance(policy, IntegerPolicy):
        return ""
    q = inputs.astype(np.int64)
    where = find_divergence(policy.net, np.moveaxis(q, -1, 1) if q.ndim == 4 else q)
    return "" if where is None else f"; first in {where}"


def _channels_last(x: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if x.ndim == 4 else x


def _choose(observations: Observations, *, extremes: bool) -> Observations:
    """Evenly spaced observations, and for integer policies of real-valued observations the extremes behind them."""
    most = min(GOLDEN_PAIRS, max(1, GOLDEN_BYTES // observations[0].nbytes), len(observations))
    chosen = observations[np.linspace(0, len(observations) - 1, most).astype(np.int64)]
    if not extremes or observations.dtype.kind != "f":
        return chosen
    rows = [np.full((1, *observations.shape[1:]), value, dtype=observations.dtype) for value in EXTREMES]
    return np.concatenate([chosen, *rows])


def _check_scheme(name: str, policy: IntegerPolicy | PolicyNet) -> None:
    """Refuse a name that promises other arithmetic than the policy's: a float file must never pass for an int8 one."""
    if not re.fullmatch(ID_PART, name):
        raise DeploymentError(f"litert: scheme {name!r} is no id part; use one or more of [a-z0-9]")
    try:
        integer = Scheme.parse(name).integer
    except SpecError:  # a mixed scheme that has no parsed name yet
        integer = isinstance(policy, IntegerPolicy)
    if integer != isinstance(policy, IntegerPolicy):
        raise DeploymentError(
            f"litert: scheme {name!r} promises {'integers' if integer else 'float32'}, the policy computes in "
            f"{'float32' if integer else 'integers'}; name the policy's own scheme"
        )
    if isinstance(policy, IntegerPolicy) and policy.net.requantization not in EXACT:
        raise DeploymentError(
            f"litert: its default kernel requantizes as fp32_rne, not as {policy.net.requantization}; "
            "use IntegerNet.with_requantization"
        )
