"""LiteRT, the TFLite runtime of a host: the one module that imports it.

The kernel is pinned and proven, because LiteRT's three sets of kernels requantize differently and because its delegate
leaves out, without a word, what it cannot run. One thread; the runtime's chatter on stderr is kept away.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import Port, check_input
from quarl_bench.errors import DeploymentError, advise_extra
from quarl_bench.system.extras import needing, require_version

PACKAGE, EXTRA = "ai-edge-litert", "litert"
LARGEST_BATCH = 1024  # longer batches are cut, which bounds the memory of images
IDENTIFIER = b"TFL3"
MOVES = ("CAST", "GATHER")  # operators that round no integer, in whichever kernel


class Kernel(StrEnum):
    """Whose arithmetic executes the file."""

    XNNPACK = "xnnpack"  # the default: fp32_rne
    BUILTIN = "builtin"  # optimized kernels without delegate
    REFERENCE = "reference"  # slow and plain


def load_schema() -> Any:
    """LiteRT's generated module of the .tflite schema; MissingExtra when it is not installed."""
    with _installed():
        from ai_edge_litert import schema_py_generated
    return schema_py_generated


def pack_model(model: Any) -> bytes:
    """The file of a `ModelT` of the schema."""
    with _installed():
        import flatbuffers  # comes with the runtime
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def runtime_version() -> str:
    """Version of the installed ai-edge-litert; MissingExtra when there is none."""
    return require_version(PACKAGE, EXTRA, PACKAGE)


class LiteRTRunner:
    """One .tflite file in one kernel. Not thread-safe: it owns the runtime's buffers."""

    def __init__(self, model: bytes, kernel: str = Kernel.XNNPACK) -> None:
        """Load `model`, the bytes of a .tflite file; DeploymentError when `kernel` cannot run all of it."""
        if kernel not in list(Kernel):
            raise DeploymentError(f"litert: unknown kernel {kernel!r}; known are {', '.join(Kernel)}")
        self.kernel = Kernel(kernel)
        with _installed():
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        resolvers = {
            Kernel.XNNPACK: OpResolverType.BUILTIN,
            Kernel.BUILTIN: OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            Kernel.REFERENCE: OpResolverType.BUILTIN_REF,
        }
        with self._one_line_errors(), _quiet_stderr():
            self._interpreter = Interpreter(
                model_content=model, num_threads=1, experimental_op_resolver_type=resolvers[self.kernel]
            )
            self._interpreter.allocate_tensors()
            inputs, outputs = self._interpreter.get_input_details(), self._interpreter.get_output_details()
        if len(inputs) != 1 or len(outputs) != 1:
            raise DeploymentError(
                f"litert: a policy has one input and one output, this file {len(inputs)} and {len(outputs)}; "
                "export again"
            )
        self._input_index, self._output_index = int(inputs[0]["index"]), int(outputs[0]["index"])
        self.input, self.output = _read_port(inputs[0]), _read_port(outputs[0])
        # Sums of integers travel as whole numbers of float32, which a cast in front of the last layer makes them.
        self._wide = self.input.dtype == np.int8 and self.output.dtype == np.float32
        if self._wide:
            self.output = replace(self.output, dtype=np.dtype(np.int32))
        self._batch = 1
        with self._one_line_errors():  # even a name can be damaged
            self._prove_kernel()

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs of a batch, as the protocol says."""
        check_input("litert", x, self.input)
        if len(x) <= LARGEST_BATCH:
            return self._run_batch(x)
        return np.concatenate([self._run_batch(x[i : i + LARGEST_BATCH]) for i in range(0, len(x), LARGEST_BATCH)])

    def _run_batch(self, x: NDArray[Any]) -> NDArray[Any]:
        if len(x) == 0:
            return np.empty((0, *self.output.shape), dtype=self.output.dtype)
        with self._one_line_errors():
            if len(x) != self._batch:
                self._resize(len(x))
            self._interpreter.set_tensor(self._input_index, np.ascontiguousarray(x))
            self._interpreter.invoke()
            outputs = self._interpreter.get_tensor(self._output_index)
            return np.asarray(outputs.astype(np.int32) if self._wide else outputs)

    def _resize(self, batch: int) -> None:
        self._batch = 0  # until the new buffers stand
        self._interpreter.resize_tensor_input(self._input_index, [batch, *self.input.shape])
        self._interpreter.allocate_tensors()
        self._prove_kernel()
        self._batch = batch

    def _prove_kernel(self) -> None:
        """Refuse a delegate that did not take the whole graph, and one that nobody asked for."""
        nodes = self._interpreter._get_ops_details()  # noqa: SLF001  (the only place where the delegate shows)
        delegates = [node for node in nodes if node["op_name"] == "DELEGATE"]
        if self.kernel is not Kernel.XNNPACK:
            if delegates:
                raise DeploymentError(
                    f"litert: a delegate runs in place of the {self.kernel} kernel; use {PACKAGE} 2.3.0"
                )
            return
        # A chain of operators is taken whole if delegates, and between them what rounds nothing (the cast to wide
        # outputs, casts and a gather of a table), lead from the model's input to its output.
        integer = self.input.dtype == np.int8
        chain = delegates + [node for node in nodes if integer and node["op_name"] in MOVES]
        tensor = self._input_index
        for _ in chain:
            tensor = next((int(node["outputs"][0]) for node in chain if tensor in node["inputs"]), tensor)
        if not delegates or tensor != self._output_index:
            taken = {int(tensor) for node in delegates for tensor in node["outputs"]}
            rest = sorted({node["op_name"] for node in nodes if taken.isdisjoint(node["outputs"])} - {"DELEGATE"})
            raise DeploymentError(
                f"litert: XNNPACK leaves out part of the graph (among {', '.join(rest)}), which would run in a "
                "kernel of other rounding; use kernel='builtin' or another weight width"
            )

    @contextlib.contextmanager
    def _one_line_errors(self) -> Iterator[None]:
        try:
            yield
        except (ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise DeploymentError(
                f"litert: the {self.kernel} kernel cannot run this file ({reason}); export again or use another kernel"
            ) from error


def _read_port(details: dict[str, Any]) -> Port:
    scale, zero_point = details["quantization"]
    return Port(
        dtype=np.dtype(details["dtype"]),
        shape=tuple(int(n) for n in details["shape"][1:]),
        scale=np.float32(scale) if scale else None,
        zero_point=int(zero_point),
    )


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    try:
        with needing(EXTRA, PACKAGE):
            yield
    except OSError as error:  # the package is there and one of its libraries is not
        raise DeploymentError(f"litert: {PACKAGE} cannot be loaded ({error}); {advise_extra(EXTRA)}") from error


@contextlib.contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Send file descriptor 2 away: the runtime writes to it below Python, and offers no switch."""
    try:
        saved = os.dup(2)
    except OSError:  # a process without stderr has nothing to protect
        yield
        return
    try:
        with tempfile.TemporaryFile() as sink:
            os.dup2(sink.fileno(), 2)
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
