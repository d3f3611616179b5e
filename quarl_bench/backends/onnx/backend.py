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
from quarl_bench.backends.onnx.qdq import load_onnx, write_float_model, write_integer_model
from quarl_bench.errors import DeploymentError, MissingExtra
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.system.extras import require

MODEL = "model.onnx"
PACKAGE = "onnxruntime"
KERNEL = "cpu"
LARGEST_BATCH = 1024  # longer batches are cut, which bounds the memory of images
# What may remain of an integer policy: integer sums, and operators that only move or select integers.
INTEGER_OPERATORS = {"QGemm", "QLinearConv", "MatMulInteger", "Add", "Transpose", "Flatten", "Reshape", "Clip", "Cast",
                     "Gather"}  # fmt: skip


def write_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The file of a policy; DeploymentError for what the form cannot express."""
    if isinstance(policy, IntegerPolicy):
        return {MODEL: write_integer_model(policy.net)}
    return {MODEL: write_float_model(policy.net)}


def to_unsigned(policy: IntegerPolicy) -> IntegerPolicy:
    """The same policy with every activation's integers moved up to bytes from 0: equal sums, equal actions."""
    net = policy.net
    layers = tuple(
        replace(layer, output=_move(layer.output), tabled=None if layer.tabled is None else _move(layer.tabled))
        for layer in net.layers
    )
    return replace(policy, net=replace(net, input=_move(net.input), layers=layers))


def _move(format: ActivationFormat) -> ActivationFormat:
    integers = format.format
    if format.wide or not integers.signed:
        return format
    moved = IntegerFormat(integers.bit_width, signed=False, narrow_range=integers.narrow_range)
    return replace(format, format=moved, zero_point=format.zero_point + moved.minimum - integers.minimum)


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
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1:
            raise DeploymentError(
                f"onnx: a policy has one input and one output, this file {len(inputs)} and {len(outputs)}; export again"
            )
        with _one_line_errors():
            quantization = _read_quantization(model)
        self.input = _read_port(inputs[0], quantization[0])
        self.output = _read_port(outputs[0], quantization[1])
        floats = sorted(set(self.operators) - INTEGER_OPERATORS)
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
            parts = [
                self._session.run(None, {"input": x[i : i + LARGEST_BATCH]}) for i in range(0, len(x), LARGEST_BATCH)
            ]
        return np.concatenate([part[0] for part in parts]) if len(parts) > 1 else np.asarray(parts[0][0])


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


def _read_port(details: Any, quantization: tuple[np.float32 | None, int]) -> Port:
    dtype = {"tensor(uint8)": np.uint8, "tensor(int32)": np.int32, "tensor(float)": np.float32}.get(details.type)
    if dtype is None:
        raise DeploymentError(f"onnx: a {details.type} port, and policies have uint8, int32 or float; export again")
    return Port(np.dtype(dtype), tuple(int(n) for n in details.shape[1:]), *quantization)


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
)
