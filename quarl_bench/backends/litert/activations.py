"""Activations in a .tflite file: of floats as the operators that XNNPACK has, of integers as a table.

LiteRT's own int8 kernels round each function in their own way. Casts and gathers only move integers, so that every
kernel gives the table's entries; the tanh kernel is exact too, and one operator.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.activations import LEAKY_SLOPE, SELU_ALPHA, SELU_SCALE, Activation
from quarl_bench.quantization.affine import Integers

if TYPE_CHECKING:
    from quarl_bench.backends.litert.flatbuffer import TfliteGraph

SINGLE: dict[Activation, tuple[str, str, dict[str, Any]]] = {  # one operator, with its options
    Activation.TANH: ("TANH", "", {}),
    Activation.SIGMOID: ("LOGISTIC", "", {}),
    Activation.ELU: ("ELU", "", {}),
    Activation.GELU: ("GELU", "GeluOptions", {"approximate": False}),
    Activation.GELU_TANH: ("GELU", "GeluOptions", {"approximate": True}),
    Activation.LEAKY_RELU: ("LEAKY_RELU", "LeakyReluOptions", {"alpha": LEAKY_SLOPE}),
    Activation.HARDTANH: ("RELU_N1_TO_1", "", {}),
    Activation.RELU6: ("RELU6", "", {}),
    Activation.HARDSWISH: ("HARD_SWISH", "HardSwishOptions", {}),
}
OPTIONS = {"MUL": "MulOptions", "ADD": "AddOptions", "DIV": "DivOptions", "ABS": "AbsOptions", "EXP": "ExpOptions",
           "NEG": "NegOptions", "MINIMUM": "MaximumMinimumOptions"}  # fmt: skip


def add_float_activation(
    graph: "TfliteGraph", activation: Activation, source: int, name: str, shape: tuple[int, ...]
) -> int:
    """Operators that compute `activation` of the tensor `source` (n, *shape) in float32; the tensor of the result."""

    def add(code: str, *inputs: int) -> int:
        output = graph.add_activation(f"{name}.{code.lower()}{len(inputs)}", shape, None)
        graph.add_operator(code, list(inputs), output, OPTIONS.get(code, "NONE"))
        return output

    def constant(value: float) -> int:
        return graph.add_weight(f"{name}.constant", np.array(value, np.float32), 32, None)

    if activation in SINGLE:
        code, kind, values = SINGLE[activation]
        output = graph.add_activation(name, shape, None)
        graph.add_operator(code, [source], output, kind or "NONE", values)
        return output
    if activation is Activation.SILU:
        return add("MUL", source, add("LOGISTIC", source))
    if activation is Activation.SOFTSIGN:
        return add("DIV", source, add("ADD", add("ABS", source), constant(1.0)))
    if activation is Activation.SELU:
        below = add("ELU", add("MINIMUM", source, constant(0.0)))
        return add(
            "ADD",
            add("MUL", add("RELU", source), constant(SELU_SCALE)),
            add("MUL", below, constant(SELU_SCALE * SELU_ALPHA)),
        )
    if activation is not Activation.SOFTPLUS:
        raise DeploymentError(f"litert: no form of {activation}; use int8")
    # max(x, 0) - log(sigmoid(|x|)), where no exponential overflows
    return add("SUB", add("RELU", source), add("LOG", add("LOGISTIC", add("ABS", source))))


def add_table(
    graph: "TfliteGraph", table: Integers, source: int, name: str, shape: tuple[int, ...], scales: Any
) -> int:
    """The entry of `table` (256,), which begins at -128, for each int8 of `source` (n, *shape)."""
    entries: NDArray[np.int8] = np.roll(table, -128).astype(np.int8)  # by the byte: -1 is 255
    output = graph.add_activation(name, shape, scales)
    constant = graph.add_weight(f"{name}.entries", entries, 8, scales)
    byte = graph.add_plain_cast(f"{name}.byte", source, shape, "INT8", "UINT8")
    index = graph.add_plain_cast(f"{name}.index", byte, shape, "UINT8", "INT32")
    graph.add_operator("GATHER", [constant, index], output, "GatherOptions", {"axis": 0})
    return output
