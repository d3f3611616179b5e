"""What every backend is: it declares what it computes, writes a policy as files, and starts files as a runner."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.state import count_state
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.policy import IntegerPolicy, Policy, PolicyNet
from quarl_bench.quantization.branches import find_starts
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Net
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.recurrent.cells import find_width
from quarl_bench.quantization.requantize import Requantization

FP32_RULES = (Requantization.FP32_RNE, Requantization.THRESHOLDS)  # two ways to the same numbers
Files = Mapping[str, bytes]  # by name; an artefact's folder holds them side by side


@dataclass(frozen=True)
class Port:
    """The model's input or output: NumPy dtype, shape without the batch axis, quantization (None for floats)."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    scale: np.float32 | None
    zero_point: int

    @classmethod
    def of(cls, format: ActivationFormat, shape: tuple[int, ...]) -> "Port":
        """The port of integers in `format`; `shape` is the net's, an image's channel-first."""
        return cls(storage_type(format), channel_last(shape), format.scale, format.zero_point)


class Runner(Protocol):
    """One model in one kernel. Not thread-safe: it owns its buffers."""

    @property
    def kernel(self) -> str:
        """Whose arithmetic executes it."""

    @property
    def input(self) -> Port:
        """Name, shape and type of what the artefact takes."""

    @property
    def output(self) -> Port:
        """Name, shape and type of what the artefact returns."""

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs (n, *output.shape) for inputs (n, *input.shape) of the model's own dtype; row by row as for n = 1.

        Images are channel-last on both sides.
        """


@dataclass(frozen=True)
class CompiledCode:
    """What an artefact's source comes to on this machine, in one kernel."""

    bytes: int  # code and constants of the policy alone
    time_call: Callable[[int], float]  # nanoseconds of one inference, the mean of so many calls


@dataclass(frozen=True)
class Backend:
    """One way to deploy, declared whole: every command that deploys, plays, times or proves reads it here.

    `refuse` and `write` raise DeploymentError, with the reason, for a policy that the backend has no form for.
    """

    name: str
    model: str  # the file that is the model; `write` may add others beside it
    # For integer policies, and for float32 ones: the first is the one that an export is verified in. None where the
    # backend has no form for such policies; `write` then says so.
    kernels: tuple[str, ...]
    float_kernels: tuple[str, ...]
    identify: Callable[[], tuple[str, str]]  # name and version of the runtime
    write: Callable[[IntegerPolicy | PolicyNet], dict[str, bytes]]
    start: Callable[[Files, str], Runner]
    list_weight_types: Callable[[Files], tuple[str, ...]]  # as the file holds them, layer by layer
    requantizations: tuple[Requantization, ...] = FP32_RULES  # that it computes exactly
    aliases: tuple[str, ...] = ()  # other names that users give it
    scheme: str = "int8"  # of an export that names none
    refuse: Callable[[IntegerPolicy | PolicyNet], None] = lambda _: None  # formats that it has no form for
    timed: bool = True  # False where a call's time means nothing: files that only hold the numbers
    # An artefact's source, in a kernel; None of files that a runtime reads. DeploymentError where nothing compiles it.
    compile_code: Callable[[Path, str], CompiledCode] | None = None
    distributions: tuple[str, ...] = ()  # whose versions decide what it computes
    renumber: Callable[[IntegerPolicy], IntegerPolicy] = lambda policy: policy  # equal, in integers that it has
    recurrent: bool = False  # whether its files have ports for a state
    branched: bool = False  # whether its files take an input apart
    compute: Callable[[PolicyNet], Policy] = lambda policy: policy  # what it makes of a float32 policy

    def make_files(self, policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
        """The files of `policy`; DeploymentError, with the reason, where the backend has no form for it."""
        if policy.net.recurrent and not self.recurrent:
            raise DeploymentError(
                f"{self.name}: a recurrent policy has a state, which its files have no ports for; use c, onnx or dump"
            )
        if policy.net.branches and not self.branched:
            raise DeploymentError(
                f"{self.name}: an image among the observation's parts passes layers of its own, and its files have no "
                "form for that; use c, onnx or dump"
            )
        self.refuse(policy)
        if isinstance(policy, IntegerPolicy):
            refuse_rule(self.name, policy.net.requantization, self.requantizations)
        return self.write(policy)


def refuse_rule(name: str, rule: Requantization, exact: tuple[Requantization, ...]) -> None:
    """DeploymentError for a rule of rounding that is not among the `exact` ones."""
    if rule not in exact:
        known = " or ".join(exact)
        raise DeploymentError(f"{name}: it requantizes as {known}, not as {rule}; use IntegerNet.with_requantization")


def list_shapes(net: Net | IntegerNet) -> list[tuple[int, ...]]:
    """Shapes of the net's input and of every layer's output, channel-first, without the batch axis.

    Both layers of a recurrent cell end in its hidden state.
    """
    shapes, starts = [net.input_shape], find_starts(net.branches, net.layers)
    widths = {cell.place + part: find_width(net.layers, cell) for cell in net.cells for part in (0, 1)}
    for index, layer in enumerate(net.layers):
        kernel, stride = layer.weight.shape[2:], layer.stride if isinstance(layer, Conv2d | QuantizedLayer) else 1
        read = starts.get(index, shapes[-1])
        sides = tuple((side - width) // stride + 1 for side, width in zip(read[1:], kernel, strict=False))
        shapes.append((widths.get(index, len(layer.bias)), *sides))
    return shapes


def list_reads(net: Net | IntegerNet) -> list[tuple[int, ...]]:
    """Shapes of what every layer reads, channel-first: a hidden state that of the second layer of a cell."""
    shapes, starts = list_shapes(net), find_starts(net.branches, net.layers)
    recalled = {cell.place + 1 for cell in net.cells}
    return [starts.get(i, shapes[i + 1] if i in recalled else shapes[i]) for i in range(len(net.layers))]


def find_ports(net: IntegerNet) -> tuple[Port, Port]:
    """Input and output of a model of `net`; a recurrent one's state stands behind both."""
    state, (first, *_, last) = count_state(net), list_shapes(net)
    ends = ((*first[:-1], first[-1] + state), (*last[:-1], last[-1] + state)) if state else (first, last)
    return Port.of(net.input, ends[0]), Port.of(net.output, ends[1])


def storage_type(format: ActivationFormat) -> np.dtype[Any]:
    """The type that holds the integers of `format`: of 8 bits, or of 32 where they are sums."""
    if format.wide:
        return np.dtype(np.int32)
    return np.dtype(np.int8 if format.format.signed else np.uint8)


def channel_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of an image with its channels at the end; other shapes as they are."""
    return (*shape[1:], shape[0]) if len(shape) == 3 else shape


def to_channel_last(x: NDArray[Any]) -> NDArray[Any]:
    """Images (n, channels, height, width) as a model takes them; other batches as they are."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if x.ndim == 4 else x


def to_channel_first(x: NDArray[Any]) -> NDArray[Any]:
    """Inverse of `to_channel_last`."""
    return np.moveaxis(x, -1, 1) if x.ndim == 4 else x


def check_input(name: str, x: NDArray[Any], port: Port) -> None:
    """Refuse what is not a batch of the model's input."""
    if x.dtype != port.dtype or x.shape[1:] != port.shape:
        wanted = f"(n, {', '.join(map(str, port.shape))}) {port.dtype}"
        raise DeploymentError(f"{name}: an input {x.shape} {x.dtype} for a model that takes {wanted}; quantize it")


def count_parameters(policy: IntegerPolicy | PolicyNet) -> int:
    """Number of weights and biases."""
    return sum(layer.weight.size + layer.bias.size for layer in policy.net.layers)
