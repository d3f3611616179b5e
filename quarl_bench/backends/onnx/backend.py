"""The ONNX backend: QDQ files that onnxruntime computes on integers, proven by the graph that it really runs."""

import contextlib
import importlib.metadata
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import Backend, Files, Port, check_input
from quarl_bench.backends.onnx.cells import ELEMENTWISE
from quarl_bench.backends.onnx.qdq import NEXT, load_onnx, write_float_model, write_integer_model
from quarl_bench.backends.state import CELL
from quarl_bench.errors import DeploymentError, MissingExtra
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.parameters import ActivationFormat, PartedFormat
from quarl_bench.system.extras import require

MODEL = "model.onnx"
PACKAGE = "onnxruntime"
KERNEL = "cpu"
LARGEST_BATCH = 1024  # longer batches are cut, which bounds the memory of images
# What may remain of an integer policy: integer sums, and operators that only move or select integers.
INTEGER_OPERATORS = {"QGemm", "QLinearConv", "MatMulInteger", "Add", "Transpose", "Flatten", "Reshape", "Clip", "Cast",
                     "Gather", "Split", "Concat"}  # fmt: skip
STATE_TYPES: dict[str, np.dtype[Any]] = {
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(int16)": CELL,
    "tensor(float)": np.dtype(np.float32),
}


def write_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The file of a policy; DeploymentError for what the form cannot express."""
    if isinstance(policy, IntegerPolicy):
        return {MODEL: write_integer_model(policy.net)}
    return {MODEL: write_float_model(policy.net)}


def to_unsigned(policy: IntegerPolicy) -> IntegerPolicy:
    """The same policy with every activation's integers moved up to bytes from 0: equal sums, equal actions."""
    net = policy.net
    summed = {cell.place + part for cell in net.cells for part in (0, 1)}  # whose outputs are sums of 16 bits
    layers = tuple(
        layer
        if index in summed
        else replace(layer, output=_move(layer.output), tabled=None if layer.tabled is None else _move(layer.tabled))
        for index, layer in enumerate(net.layers)
    )
    cells = tuple(replace(cell, hidden=_move(cell.hidden)) for cell in net.cells)
    return replace(policy, net=replace(net, input=_move(net.input), layers=layers, cells=cells))


def _move(format: ActivationFormat) -> ActivationFormat:
    integers = format.format
    if format.wide or not integers.signed:
        return format
    moved = IntegerFormat(integers.bit_width, signed=False, narrow_range=integers.narrow_range)
    found = replace(format, format=moved, zero_point=format.zero_point + moved.minimum - integers.minimum)
    return replace(found, parts=tuple(map(_move, found.parts))) if isinstance(found, PartedFormat) else found


class OnnxRunner:
    """One .onnx file in onnxruntime's CPU kernels, on one thread."""

    kernel = KERNEL

    def __init__(self, model: bytes) -> None:
        """Load `model`; DeploymentError when it is damaged, or when a layer of an integer model stays float."""
        runtime = load_runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Without it, processors that lack a dot product of bytes saturate 16-bit sums of unsigned and signed ones.
        options.add_session_config_entry("session.x64quantprecision", "1")
        with _one_line_errors(), tempfile.TemporaryDirectory() as folder:
            options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
            self._session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
            self.operators = _list_operators(Path(options.optimized_model_filepath).read_bytes())
        (first, *inputs), (last, *outputs) = self._session.get_inputs(), self._session.get_outputs()
        if [f"{one.name}.{NEXT}" for one in inputs] != [one.name for one in outputs]:
            raise DeploymentError(
                "onnx: a policy has one input and one output, and each part of its state before and behind the step; "
                f"this file has {1 + len(inputs)} inputs and {1 + len(outputs)} outputs; export again"
            )
        with _one_line_errors():
            quantization = _read_quantization(model)
        self.input, self.output = (
            _read_port(details, numbers, [_read_state(one) for one in parts])
            for details, numbers, parts in ((first, quantization[0], inputs), (last, quantization[1], outputs))
        )
        self._states = {one.name: _read_state(one) for one in inputs}
        known = INTEGER_OPERATORS | (ELEMENTWISE if self._states else set())
        floats = sorted(set(self.operators) - known)
        if self.input.dtype == np.uint8 and floats:
            raise DeploymentError(
                f"onnx: {PACKAGE} leaves part of the policy in floats ({', '.join(floats)}), so it would not compute "
                "the policy's integers; use onnxruntime 1.31.1"
            )

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs of a batch, as the protocol says."""
        check_input("onnx", x, self.input)
        if len(x) == 0:
            return np.empty((0, *self.output.shape), dtype=self.output.dtype)
        with _one_line_errors():
            parts = [self._run(x[i : i + LARGEST_BATCH]) for i in range(0, len(x), LARGEST_BATCH)]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _run(self, x: NDArray[Any]) -> NDArray[Any]:
        """A batch that is not too large; a state stands behind inputs and outputs, as `backends/state.py` packs it."""
        if not self._states:
            return np.asarray(self._session.run(None, {"input": x})[0])
        sizes = [width * dtype.itemsize // x.itemsize for dtype, width in self._states.values()]
        own, *parts = np.split(x, np.cumsum([x.shape[1] - sum(sizes), *sizes[:-1]]), axis=1)
        state = {
            name: np.ascontiguousarray(part).view(dtype)
            for part, (name, (dtype, _)) in zip(parts, self._states.items(), strict=True)
        }
        found = self._session.run(None, {"input": own} | state)
        return np.concatenate([np.ascontiguousarray(part).view(self.output.dtype) for part in found], axis=1)


def load_runtime() -> Any:
    """The onnxruntime package; MissingExtra when it is not installed."""
    return require("onnxruntime", "onnx", PACKAGE)


def runtime_version() -> str:
    """Version of the installed runtime."""
    load_runtime()
    return importlib.metadata.version(PACKAGE)


def _list_operators(model: bytes) -> tuple[str, ...]:
    """Operators of the optimized graph, in order."""
    return tuple(node.op_type for node in load_onnx().load_model_from_string(model).graph.node)


def _list_weight_types(files: Files) -> tuple[str, ...]:
    onnx = load_onnx()
    names = {value: name for name, value in onnx.TensorProto.DataType.items()}
    constants = onnx.load_model_from_string(files[MODEL]).graph.initializer
    types = {constant.name: names[constant.data_type] for constant in constants}
    return tuple(kind for name, kind in types.items() if name.endswith(".weight"))


def _read_quantization(model: bytes) -> tuple[tuple[np.float32 | None, int], tuple[np.float32 | None, int]]:
    """(scale, zero point) of the input and of the output; (None, 0) in a float file."""
    onnx = load_onnx()
    loaded = onnx.load_model_from_string(model)
    constants = {c.name: onnx.numpy_helper.to_array(c) for c in loaded.graph.initializer}
    found = {prop.key: prop.value for prop in loaded.metadata_props}
    if "layers.0.x.scale" not in constants and "input.scale" not in found:
        return (None, 0), (None, 0)
    last = sum(name.endswith(".x.scale") for name in constants) - 1
    for name in ("scale", "zero_point"):
        for port, constant in (("input", f"layers.0.x.{name}"), ("output", f"layers.{last}.output.{name}")):
            if f"{port}.{name}" not in found:
                found[f"{port}.{name}"] = constants[constant]
    first, second = (
        (np.float32(found[f"{port}.scale"]), int(found[f"{port}.zero_point"])) for port in ("input", "output")
    )
    return first, second


def _read_port(
    details: Any, quantization: tuple[np.float32 | None, int], state: list[tuple[np.dtype[Any], int]]
) -> Port:
    """A port with its part of the state behind it."""
    dtype = {"tensor(uint8)": np.uint8, "tensor(int32)": np.int32, "tensor(float)": np.float32}.get(details.type)
    if dtype is None:
        raise DeploymentError(f"onnx: a {details.type} port, and policies have uint8, int32 or float; export again")
    size = sum(width * kind.itemsize for kind, width in state) // np.dtype(dtype).itemsize
    *others, width = (int(n) for n in details.shape[1:])
    return Port(np.dtype(dtype), (*others, width + size), *quantization)


def _read_state(details: Any) -> tuple[np.dtype[Any], int]:
    """Type and width of a part of the state."""
    if details.type not in STATE_TYPES or len(details.shape) != 2:
        raise DeploymentError(f"onnx: a {details.type} state, and states have uint8, int16 or float; export again")
    return STATE_TYPES[details.type], int(details.shape[1])


@contextlib.contextmanager
def _one_line_errors() -> Iterator[None]:
    try:
        yield
    except (DeploymentError, MissingExtra):
        raise
    except Exception as error:  # its errors, and protobuf's, have no common base
        reason = " ".join(str(error).split())[:200]
        raise DeploymentError(f"onnx: {PACKAGE} cannot run this file ({reason}); export again") from error


ONNX = Backend(
    name="onnx",
    model=MODEL,
    distributions=(PACKAGE, "onnx"),
    kernels=(KERNEL,),
    float_kernels=(KERNEL,),
    identify=lambda: (PACKAGE, runtime_version()),
    write=write_model,
    start=lambda files, _: OnnxRunner(files[MODEL]),
    list_weight_types=_list_weight_types,
    renumber=to_unsigned,
    recurrent=True,
    branched=True,
)
