"""A policy that runs from its artefact, and the proof that it acts as it did before deployment."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.artefact import Artefact, Golden, read_artefact
from quarl_bench.backends.base import Port, Runner, storage_type, to_channel_last
from quarl_bench.backends.registry import find_backend
from quarl_bench.errors import DeploymentError, PolicyError
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.policy import Observations, Policy
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.net import Floats, refuse_state
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.quantization.recurrent.cells import State

# Float32 sums differ between libraries in their order, and round as their summands do, not as their result: two
# artefacts of one net agree to this share of its largest golden output, or to this much where that is below 1. Integers
# agree exactly.
TOLERANCE = 1e-5
ONE = np.float32(1)


@dataclass(frozen=True, eq=False)
class DeployedNet:
    """A model in a runtime, between the observation transform and the action head."""

    runner: Runner
    input: ActivationFormat | None
    output: ActivationFormat | None
    begin: NDArray[Any] | None = None  # the state, as it stands behind the inputs, of an episode that begins

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of a net input without the batch axis, channel-first."""
        shape = self.runner.input.shape
        return (shape[2], *shape[:2]) if len(shape) == 3 else (*shape[:-1], shape[-1] - self._size)

    @property
    def outputs(self) -> int:
        """Width of the last layer."""
        return self.runner.output.shape[0] - self._size

    @property
    def recurrent(self) -> bool:
        """Whether it has a state."""
        return self.begin is not None

    @property
    def _size(self) -> int:
        return 0 if self.begin is None else len(self.begin)

    def forward(self, x: Floats) -> Floats:
        """Outputs (n, outputs) for net inputs (n, *input_shape), dequantized where the model is integer.

        Integer models: infinities saturate, NaN is a QuantizationError. Float models refuse both, because kernels
        differ there.
        """
        refuse_state(self, "a call without a state")
        return self.decode(self.runner.run(self.encode(x)))

    def initial_state(self, count: int) -> State:
        """The state of `count` episodes that begin, as it stands behind the inputs."""
        return () if self.begin is None else (np.tile(self.begin, (count, 1)),)

    def adopt(self, _: State) -> State:
        """PolicyError: an artefact has its own form of a state."""
        raise PolicyError("an artefact's state is not that of its fp32 policy; compare whole episodes, not --states")

    def step(self, x: Floats, state: State) -> tuple[Floats, State]:
        """Outputs as of `forward` and the next state, for net inputs (n, *input_shape) and the state before."""
        raw = self.runner.run(np.concatenate([self.encode(x), *state], axis=1))
        return self.decode(raw[:, : self.outputs]), (raw[:, self.outputs :],)

    def decode(self, raw: NDArray[Any]) -> Floats:
        """The model's own outputs (n, outputs) as real numbers."""
        return raw if self.output is None else self.output.dequantize(raw.astype(np.int64))

    def run(self, q: Integers) -> Integers:
        """Output integers for input integers (n, *input_shape), as an IntegerNet's."""
        return self.runner.run(to_channel_last(q.astype(self.runner.input.dtype))).astype(np.int64)

    def encode(self, x: Floats) -> NDArray[Any]:
        """What the model takes for net inputs (n, *input_shape): its type and its layout."""
        if self.input is not None:
            return to_channel_last(self.input.quantize(x).astype(self.runner.input.dtype))
        if not np.isfinite(x).all():
            raise DeploymentError("observations hold NaN or infinity, where float kernels differ; clip them before")
        return to_channel_last(x)


@dataclass(frozen=True, eq=False)
class DeployedPolicy(Policy):
    """The whole map from raw observation to action, computed by an artefact's model."""

    net: DeployedNet
    artefact: Artefact


def load_artefact(folder: Path, kernel: str | None = None) -> DeployedPolicy:
    """The policy in `folder`, in the kernel that it was verified with unless `kernel` names another.

    DeploymentError for a folder that is truncated, exchanged or ill-formed, and for a kernel that cannot run it all.
    """
    artefact = read_artefact(folder)
    try:
        return start(artefact, artefact.runtime.kernel if kernel is None else kernel)
    except (DeploymentError, PolicyError) as error:
        raise DeploymentError(f"{folder}: {error}") from error


def start(artefact: Artefact, kernel: str) -> DeployedPolicy:
    """An artefact in a runtime; DeploymentError when its model and its manifest contradict each other."""
    runner = find_backend(artefact.backend).start(artefact.files, kernel)
    _check_port("input", runner.input, artefact.input)
    _check_port("output", runner.output, artefact.output)
    net = DeployedNet(runner, artefact.input, artefact.output, artefact.initial_state)
    return DeployedPolicy(artefact.transform, net, artefact.head, artefact)


def time_calls(policy: Policy, states: Observations, calls: int) -> list[float]:
    """Microseconds of calls from Python with one state each, quantization and head included."""
    times, state = [], policy.initial_state(1)
    for call in range(calls):
        one = states[call % len(states)][None]
        begin = time.perf_counter_ns()
        if policy.recurrent:
            policy.act(one, state)
        else:
            policy.act(one)
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return times


def verify(deployed: DeployedPolicy) -> int:
    """Run all golden pairs again and return how many; DeploymentError names the first element that differs.

    Observations must give the golden inputs, inputs the golden outputs, outputs the golden actions: exactly for
    integers and indices, within TOLERANCE for floats.
    """
    golden, net = deployed.artefact.golden, deployed.net
    where = f"{net.runner.kernel} kernel"
    inputs = net.encode(deployed.transform.apply(golden.observations))
    if net.recurrent:  # whose state the pairs bring
        inputs = np.concatenate([inputs, golden.inputs[:, inputs.shape[1] :]], axis=1)
    _require_equal(f"{where}, input", golden.inputs, inputs)
    outputs = net.runner.run(golden.inputs)
    unit = np.float32(max(1.0, float(np.abs(golden.outputs).max())))
    _require_equal(f"{where}, output", golden.outputs, outputs, unit)
    if net.recurrent:
        outputs = outputs[:, : net.outputs]
        actions = deployed.head.act(net.decode(outputs))
    else:
        actions = deployed.act(golden.observations)
    if net.output is None and deployed.head.discrete:
        actions = _settle_ties(deployed.head, golden, outputs, actions, unit)
    head = deployed.head
    span = ONE if head.low is None or head.high is None else head.high - head.low
    _require_equal(f"{where}, action", golden.actions, actions, np.maximum(span, 1))
    return len(golden.actions)


def _settle_ties(
    head: ActionHead, golden: Golden, outputs: Floats, actions: NDArray[Any], unit: np.float32
) -> NDArray[Any]:
    """Take the golden index where float outputs leave no winner beyond the tolerance."""
    logits = head.weigh(outputs)
    top, expected = (head.read_chosen(logits, each) for each in (actions, golden.actions))
    settled = (top - expected <= 2 * TOLERANCE * unit).reshape(actions.shape)
    return np.where(settled, golden.actions, actions)


def _require_equal(what: str, expected: NDArray[Any], got: NDArray[Any], unit: Floats | np.float32 = ONE) -> None:
    """`unit`: the size below which a float's tolerance no longer shrinks."""
    if expected.shape != got.shape:
        raise DeploymentError(f"{what}: golden shape {expected.shape}, got {got.shape}; export again")
    if expected.dtype.kind == "f":
        equal = np.abs(got - expected) <= TOLERANCE * np.maximum(np.abs(expected), unit)
    else:
        equal = got == expected
    if equal.all():
        return
    first = tuple(int(i) for i in np.argwhere(~equal)[0])
    element = f" {first[1] if len(first) == 2 else first[1:]}" if len(first) > 1 else ""
    raise DeploymentError(
        f"{what}{element} of golden pair {first[0]}: expected {expected[first]}, got {got[first]} "
        f"({(~equal).sum()} of {equal.size} elements differ); the runtime does not compute this policy"
    )


def _check_port(name: str, port: Port, format: ActivationFormat | None) -> None:
    dtype = np.dtype(np.float32) if format is None else storage_type(format)
    scale, zero_point = (None, 0) if format is None else (format.scale, format.zero_point)
    if (port.dtype, port.scale, port.zero_point) != (dtype, scale, zero_point):
        raise DeploymentError(
            f"the model's {name} is {port.dtype} of scale {port.scale} and zero point {port.zero_point}, "
            f"the manifest's {dtype} of {scale} and {zero_point}; export again"
        )
