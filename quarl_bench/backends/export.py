"""From a policy to an artefact that has already proved itself: what does not equal its golden pairs is not written."""

import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.artefact import Artefact, Golden, Runtime, write_artefact
from quarl_bench.backends.base import (
    Backend,
    Runner,
    count_parameters,
    storage_type,
    to_channel_first,
    to_channel_last,
)
from quarl_bench.backends.deployed import DeployedPolicy, start, verify
from quarl_bench.backends.registry import find_backend
from quarl_bench.backends.state import pack_state, renumber_state
from quarl_bench.errors import DeploymentError, SpecError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.masks import drop_masks
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, Policy, PolicyNet, States, Visited, deployable
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import find_norm
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import ID_PART

GOLDEN_PAIRS = 256
GOLDEN_BYTES = 1 << 20  # of raw observations; fewer pairs when they are images
EXTREMES = (np.inf, -np.inf, 1e30, -1e30, 0.0)  # what saturates must saturate alike everywhere


def export_policy(
    policy: Policy,
    folder: Path,
    observations: States,
    *,
    scheme: str,
    source_sha256: str,
    backend: str = "litert",
) -> DeployedPolicy:
    """Write `policy` to `folder` as an artefact of `backend`, verified in its first kernel, and return it running.

    int<n> policies become integer files. fp32, fp16 and weight-only ones become float32 files of their rounded weights,
    or of integer weights and activations that are quantized at every call (`litert-dynamic`).
    `observations` (n, *shape) are raw states that the policy visits: the golden pairs are taken from them.
    `scheme` names the quantization and `source_sha256` the stored fp32 policy it began with.
    DeploymentError when the backend has no form for the policy, or computes anything else than it.
    """
    found, policy = find_backend(backend), deployable(policy)
    backend = found.name  # of an alias
    observations = drop_masks(observations)  # golden pairs are of all actions: masks are the caller's
    if not isinstance(policy, IntegerPolicy | PolicyNet):
        raise DeploymentError(
            f"{backend}: a {type(policy).__name__} cannot be exported; export the policy it came from"
        )
    _check_scheme(backend, scheme, policy)
    if len(observations) == 0:
        raise DeploymentError(f"{backend}: no observations for golden pairs; pass states that the policy visits")
    if isinstance(policy, IntegerPolicy):
        renumbered = found.renumber(policy)
        if isinstance(observations, Visited):
            observations = replace(observations, state=renumber_state(policy.net, renumbered.net, observations.state))
        policy = renumbered
    kernel = _first_kernel(found, policy)
    files = found.make_files(policy)
    computed = policy if isinstance(policy, IntegerPolicy) else found.compute(policy)
    artefact = Artefact(
        backend=backend,
        scheme=scheme,
        source_sha256=source_sha256,
        model=files[found.model],
        transform=policy.transform,
        head=policy.head,
        input=policy.net.input if isinstance(policy, IntegerPolicy) else None,
        output=policy.net.output if isinstance(policy, IntegerPolicy) else None,
        weight_types=found.list_weight_types(files),
        parameters=count_parameters(policy),
        runtime=Runtime(*found.identify(), kernel, platform.machine()),
        initial_state=find_initial_state(computed),
        golden=make_golden(computed, _choose(observations, extremes=isinstance(policy, IntegerPolicy))),
        others={name: content for name, content in files.items() if name != found.model},
    )
    deployed = start(artefact, kernel)
    try:
        verify(deployed)
    except DeploymentError as error:
        raise DeploymentError(f"{backend}: {error}{_locate(found, policy, artefact.golden.inputs)}") from error
    write_artefact(artefact, folder)
    return deployed


def make_golden(policy: Policy, observations: States) -> Golden:
    """What `policy` does, step by step, for raw observations (n, *shape), of a recurrent policy with states."""
    if policy.recurrent:
        return _make_recurrent(policy, observations)
    assert not isinstance(observations, Visited)  # noqa: S101 (of a policy without a state)
    inputs = policy.transform.apply(observations)
    if isinstance(policy, IntegerPolicy):
        q = policy.net.input.quantize(inputs)
        return Golden(
            observations,
            to_channel_last(q.astype(storage_type(policy.net.input))),
            policy.net.run(q).astype(storage_type(policy.net.output)),
            policy.act(observations),
        )
    return Golden(observations, to_channel_last(inputs), policy.outputs(observations), policy.act(observations))


def _make_recurrent(policy: Policy, visited: States) -> Golden:
    if not isinstance(visited, Visited) or not isinstance(policy, IntegerPolicy | PolicyNet):
        raise DeploymentError("golden pairs of a recurrent policy need its states; pass Visited of its rollouts")
    net, inputs = policy.net, policy.transform.apply(visited.observations)
    state = net.adopt(visited.state)
    outputs: NDArray[Any]
    if isinstance(net, IntegerNet):
        q = net.input.quantize(inputs)
        inputs, kind = q.astype(storage_type(net.input)), storage_type(net.output)
        found, behind = net.run_step(q, state)
        outputs, values = found.astype(kind), net.output.dequantize(found)
    else:
        outputs, behind = net.step(inputs, state)
        kind, values = outputs.dtype, outputs
    ends = ((inputs, pack_state(net, state, inputs.dtype)), (outputs, pack_state(net, behind, kind)))
    before, after = (np.concatenate(end, axis=1) for end in ends)
    return Golden(visited.observations, before, after, policy.head.act(values))


def find_initial_state(policy: Policy) -> NDArray[Any] | None:
    """As it stands behind the inputs; None where there is none."""
    if not policy.recurrent or not isinstance(policy, IntegerPolicy | PolicyNet):
        return None
    kind = storage_type(policy.net.input) if isinstance(policy, IntegerPolicy) else np.dtype(np.float32)
    return np.asarray(pack_state(policy.net, policy.initial_state(1), kind)[0])


def run_integers(net: IntegerNet, q: Integers, backend: str = "litert", kernel: str | None = None) -> Integers:
    """What `backend` makes of `net` for input integers (n, *input_shape): output integers, images channel-first.

    They are the integers of `net`, however the backend numbers them. It may end in an image, as beginnings of a
    policy's net do.
    """
    found = find_backend(backend)
    transform = ObservationTransform(net.input_shape, image=len(net.input_shape) == 3)
    numbered = found.renumber(IntegerPolicy(transform, net, ActionHead(HeadKind.ARGMAX)))
    runner: Runner = found.start(found.make_files(numbered), kernel or found.kernels[0])
    shift = numbered.net.input.zero_point - net.input.zero_point
    back = net.output.zero_point - numbered.net.output.zero_point
    x = to_channel_last((q + shift).astype(runner.input.dtype))
    return to_channel_first(runner.run(x).astype(np.int64) + back)


def find_divergence(net: IntegerNet, q: Integers, backend: str = "litert", kernel: str | None = None) -> str | None:
    """Where a backend first leaves the golden model for input integers (n, *input_shape): layer, element and values.

    Kernels keep no intermediate tensors, so ever longer beginnings of the net are run; None when all agree, and of
    branches, which have no beginnings that are nets.
    """
    if net.branches:
        return None
    for index, expected in enumerate(net.trace(q)):
        begin = IntegerNet(net.input_shape, net.input, net.layers[: index + 1], net.requantization)
        got = run_integers(begin, q, backend, kernel)
        if (got != expected).any():
            first = tuple(int(i) for i in np.argwhere(got != expected)[0])
            values = f"expected {expected[first]}, got {got[first]}"
            return f"layer {index}, element {first[1:]} of pair {first[0]}: {values}"
    return None


def _first_kernel(backend: Backend, policy: IntegerPolicy | PolicyNet) -> str:
    if isinstance(policy, IntegerPolicy):
        if not backend.kernels:
            backend.make_files(policy)  # says why
        return backend.kernels[0]
    norm = find_norm(policy.net)
    if norm is not None:
        raise DeploymentError(f"{backend.name}: layer {norm} is normalized, which no backend has; play it without one")
    if not backend.float_kernels:
        backend.make_files(policy)  # says why
        raise DeploymentError(f"{backend.name}: it runs integers only; use an int<bits> scheme")
    return backend.float_kernels[0]


def _locate(backend: Backend, policy: IntegerPolicy | PolicyNet, inputs: NDArray[Any]) -> str:
    if not isinstance(policy, IntegerPolicy) or policy.recurrent:
        return ""
    where = find_divergence(policy.net, to_channel_first(inputs.astype(np.int64)), backend.name)
    return "" if where is None else f"; first in {where}"


def _choose(states: States, *, extremes: bool) -> States:
    """Evenly spaced observations, and for integer policies of real-valued observations the extremes behind them."""
    observations = states.observations if isinstance(states, Visited) else states
    most = min(GOLDEN_PAIRS, max(1, GOLDEN_BYTES // observations[0].nbytes), len(observations))
    rows = np.linspace(0, len(observations) - 1, most).astype(np.int64)
    if not extremes or observations.dtype.kind != "f":
        return states[rows]
    ends = [np.full((1, *observations.shape[1:]), value, dtype=observations.dtype) for value in EXTREMES]
    seen = np.concatenate([observations[rows], *ends])
    if not isinstance(states, Visited):
        return np.asarray(seen)
    return Visited(seen, states[np.append(rows, np.resize(rows, len(EXTREMES)))].state)


def _check_scheme(backend: str, name: str, policy: IntegerPolicy | PolicyNet) -> None:
    """Refuse a name that promises other arithmetic than the policy's: a float file must never pass for an int8 one."""
    if not re.fullmatch(ID_PART, name):
        raise DeploymentError(f"{backend}: scheme {name!r} is no id part; use one or more of [a-z0-9]")
    try:
        integer = Scheme.parse(name).integer
    except SpecError:  # a mixed scheme that has no parsed name yet
        integer = isinstance(policy, IntegerPolicy)
    if integer != isinstance(policy, IntegerPolicy):
        raise DeploymentError(
            f"{backend}: scheme {name!r} promises {'integers' if integer else 'float32'}, the policy computes in "
            f"{'float32' if integer else 'integers'}; name the policy's own scheme"
        )
