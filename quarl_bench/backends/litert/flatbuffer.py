"""A net as the bytes of a .tflite file, written with LiteRT's own schema: no converter, so our numbers stay ours.

The batch axis comes first and is free. Images are channel-last inside the file (n, height, width, channels). Scales and
zero points are the net's; a per-tensor weight scale is repeated per channel, because that selects the kernel whose
requantization is exact on every processor.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import channel_last
from quarl_bench.backends.litert.activations import add_float_activation, add_table
from quarl_bench.backends.litert.dynamic_range import DynamicNet
from quarl_bench.backends.litert.operands import (
    Operands,
    Scales,
    check_activations,
    integer_operands,
    scales_of,
    wide_operands,
)
from quarl_bench.backends.litert.runtime import load_schema, pack_model
from quarl_bench.quantization.activations import Activation, is_tabled
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Layer, Linear, Net

VERSIONS = {  # of each operator: the lowest that carries int8 per channel, the same for float32
    "FULLY_CONNECTED": 5,
    "CONV_2D": 3,
    "TANH": 2,
    "RESHAPE": 1,
    "DEQUANTIZE": 3,  # from float16
    "CAST": 1,
    "GATHER": 2,
}
ACTIVATION_VERSION = 1  # of every other operator, which computes floats


def write_float_net(net: Net) -> bytes:
    """The .tflite file of a float32 net; layers whose numbers are all float16 are stored as such, in half the bytes."""
    operands = [Operands(layer, layer.weight, layer.bias, 16 if _is_half(layer) else 32) for layer in net.layers]
    return _write(net.input_shape, None, operands)


def write_dynamic_net(net: DynamicNet) -> bytes:
    """The .tflite file of a net in dynamic range: int8 weights, float32 biases and activations."""
    operands = [Operands(part.layer, part.weight, part.layer.bias, 8, Scales(part.scale)) for part in net.layers]
    return _write(net.input_shape, None, operands)


def write_integer_net(net: IntegerNet) -> bytes:
    """The .tflite file of an integer net: int8 activations, int32 biases, weights of 8, 4 or 2 bits."""
    check_activations(net)
    operands, source = [], net.input
    for layer in net.layers:
        operands.append(wide_operands(layer, source) if layer.output.wide else integer_operands(layer, source))
        source = layer.result
    return _write(net.input_shape, scales_of(net.input), operands)


def _is_half(layer: Layer) -> bool:
    with np.errstate(over="ignore"):
        halves = [array.astype(np.float16).astype(np.float32) for array in (layer.weight, layer.bias)]
    return all(np.array_equal(*pair) for pair in zip(halves, (layer.weight, layer.bias), strict=True))


def list_weight_types(model: bytes) -> tuple[str, ...]:
    """Names of the types of the weights in a .tflite file, layer by layer: `FLOAT32`, `FLOAT16`, `INT8`, ..."""
    return tuple(kind for name, kind in list_tensor_types(model) if name.endswith(".weight"))


def list_tensor_types(model: bytes) -> list[tuple[str, str]]:
    """(name, type) of every tensor in a .tflite file of this module."""
    schema = load_schema()
    names = {value: name for name, value in vars(schema.TensorType).items() if name.isupper()}
    graph = schema.ModelT.InitFromPackedBuf(model).subgraphs[0]
    return [(tensor.name.decode(), names[tensor.type]) for tensor in graph.tensors]


def _write(input_shape: tuple[int, ...], input_scales: Scales | None, layers: list[Operands]) -> bytes:
    graph = TfliteGraph(integer=input_scales is not None)
    shape = input_shape
    source = first = graph.add_activation("input", shape, input_scales)
    scales = input_scales
    for index, operands in enumerate(layers):
        name, layer = f"layers.{index}", operands.layer
        weight = operands.weight
        if isinstance(layer, Linear) and len(shape) == 3:
            # Our columns are channel-first, the file's activations channel-last.
            weight = weight.reshape(-1, *shape).transpose(0, 2, 3, 1).reshape(weight.shape)
            shape = (int(np.prod(shape)),)
            source = graph.add_reshape(f"{name}.flat", source, shape, scales)
        elif isinstance(layer, Conv2d):
            weight = weight.transpose(0, 2, 3, 1)
        if operands.wide:
            source = graph.add_cast(f"{name}.cast", source, shape)
        shape = layer.output_shape(shape)
        inputs = [
            source,
            graph.add_weight(f"{name}.weight", weight, operands.bit_width, operands.weight_scales),
            graph.add_bias(f"{name}.bias", operands.bias, operands.bias_scales, half=operands.bit_width == 16),
        ]
        scales = operands.output_scales
        source = graph.add_activation(f"{name}.output", shape, scales)
        graph.add_affine(layer, inputs, source)
        if is_tabled(layer.activation):
            named = f"{name}.{layer.activation}"
            scales = operands.tabled_scales
            if operands.table is None:
                source = add_float_activation(graph, layer.activation, source, named, shape)
            elif layer.activation is Activation.TANH:
                before, source = source, graph.add_activation(named, shape, scales)
                graph.add_operator("TANH", [before], source)
            else:
                source = add_table(graph, operands.table, source, named, shape, scales)
    return graph.finish(first, source)


class TfliteGraph:
    """A file under construction: tensors, operators and the buffers behind them."""

    def __init__(self, *, integer: bool) -> None:
        self._schema: Any = load_schema()
        self._types = self._schema.TensorType
        self._integer = integer
        self._buffers: list[Any] = [self._schema.BufferT()]  # the format's empty buffer, of what is not constant
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        self._codes: list[str] = []

    def add_cast(self, name: str, source: int, shape: tuple[int, ...]) -> int:
        """The integers of `source` (n, *shape) as whole numbers of float32, which all that follows computes in."""
        self._integer = False
        return self.add_plain_cast(name, source, shape, "INT8", "FLOAT32")

    def add_plain_cast(self, name: str, source: int, shape: tuple[int, ...], given: str, wanted: str) -> int:
        """The numbers of `source` (n, *shape), of the type `given`, in the type `wanted`."""
        shape = channel_last(shape)
        kinds = {"inDataType": getattr(self._types, given), "outDataType": getattr(self._types, wanted)}
        output = self._add_tensor(name, (1, *shape), kinds["outDataType"], 0, None, signature=(-1, *shape))
        self.add_operator("CAST", [source], output, "CastOptions", kinds)
        return output

    def add_activation(self, name: str, shape: tuple[int, ...], scales: Scales | None) -> int:
        """A tensor (n, *shape), channel-last."""
        shape = channel_last(shape)
        kind = self._types.INT8 if self._integer else self._types.FLOAT32
        return self._add_tensor(name, (1, *shape), kind, 0, scales, signature=(-1, *shape))

    def add_weight(self, name: str, weight: NDArray[np.generic], bit_width: int, scales: Scales | None) -> int:
        """A constant in its final layout, packed when it has less than 8 bits."""
        if bit_width == 16:
            return self._add_half(name, weight)
        types = {32: self._types.FLOAT32, 8: self._types.INT8, 4: self._types.INT4, 2: self._types.INT2}
        data = pack_bits(weight, bit_width) if bit_width < 8 else weight
        return self._add_tensor(name, weight.shape, types[bit_width], self._add_buffer(data), scales)

    def add_bias(self, name: str, bias: NDArray[np.generic], scales: Scales | None, *, half: bool) -> int:
        """Add a constant (outputs,) of int32, float32 or float16; its tensor's index is returned."""
        if half:
            return self._add_half(name, bias)
        kind = self._types.INT32 if self._integer else self._types.FLOAT32
        return self._add_tensor(name, bias.shape, kind, self._add_buffer(bias), scales)

    def add_reshape(self, name: str, source: int, shape: tuple[int, ...], scales: Scales | None) -> int:
        """A view (n, *shape) of the tensor `source`."""
        target = np.array([-1, *shape], dtype=np.int32)
        constant = self._add_tensor(f"{name}.shape", target.shape, self._types.INT32, self._add_buffer(target), None)
        output = self.add_activation(name, shape, scales)
        self.add_operator("RESHAPE", [source, constant], output, "ReshapeOptions", {"newShape": target.tolist()})
        return output

    def add_affine(self, layer: Layer, inputs: list[int], output: int) -> None:
        """The operator of a layer, with its ReLU fused."""
        fused = self._schema.ActivationFunctionType
        activation = fused.RELU if layer.activation is Activation.RELU else fused.NONE
        options: dict[str, Any] = {"fusedActivationFunction": activation}
        if isinstance(layer, Conv2d):
            options |= {"padding": self._schema.Padding.VALID, "strideW": layer.stride, "strideH": layer.stride}
            self.add_operator("CONV_2D", inputs, output, "Conv2DOptions", options)
        else:
            dynamic = not self._integer and self._tensors[inputs[1]].type == self._types.INT8
            options |= {"asymmetricQuantizeInputs": dynamic}
            self.add_operator("FULLY_CONNECTED", inputs, output, "FullyConnectedOptions", options)

    def add_operator(
        self, code: str, inputs: list[int], output: int, kind: str = "NONE", options: Mapping[str, Any] | None = None
    ) -> None:
        """One operator of the graph, in order of execution; `kind` is the schema's name of its options."""
        operator = self._schema.OperatorT()
        if code not in self._codes:
            self._codes.append(code)
        operator.opcodeIndex = self._codes.index(code)
        operator.inputs, operator.outputs = inputs, [output]
        operator.builtinOptionsType = getattr(self._schema.BuiltinOptions, kind)
        if kind != "NONE":
            operator.builtinOptions = getattr(self._schema, f"{kind}T")()
            for name, value in (options or {}).items():
                setattr(operator.builtinOptions, name, value)
        self._operators.append(operator)

    def finish(self, first: int, last: int) -> bytes:
        """The file, with the tensors `first` and `last` as its input and output."""
        model, graph = self._schema.ModelT(), self._schema.SubGraphT()
        graph.tensors, graph.operators = self._tensors, self._operators
        graph.inputs, graph.outputs, graph.name = [first], [last], "policy"
        model.version, model.description = 3, "quarl_bench"
        model.subgraphs, model.buffers = [graph], self._buffers
        model.operatorCodes = [self._operator_code(name) for name in self._codes]
        return pack_model(model)

    def _operator_code(self, name: str) -> Any:
        code = self._schema.OperatorCodeT()
        code.builtinCode = getattr(self._schema.BuiltinOperator, name)
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)  # a byte, which older runtimes read
        code.version = VERSIONS.get(name, ACTIVATION_VERSION)
        return code

    def _add_half(self, name: str, values: NDArray[np.generic]) -> int:
        """A float16 constant, and what dequantizes it: runtimes do so once, when they load the file."""
        stored = self._add_tensor(
            name, values.shape, self._types.FLOAT16, self._add_buffer(values.astype(np.float16)), None
        )
        single = self._add_tensor(f"{name}.single", values.shape, self._types.FLOAT32, 0, None)
        self.add_operator("DEQUANTIZE", [stored], single)
        return single

    def _add_buffer(self, data: NDArray[np.generic]) -> int:
        buffer = self._schema.BufferT()
        little = np.ascontiguousarray(data, dtype=data.dtype.newbyteorder("<"))
        buffer.data = np.frombuffer(little.tobytes(), dtype=np.uint8)
        self._buffers.append(buffer)
        return len(self._buffers) - 1

    def _add_tensor(
        self,
        name: str,
        shape: tuple[int, ...],
        kind: int,
        buffer: int,
        scales: Scales | None,
        *,
        signature: tuple[int, ...] | None = None,
    ) -> int:
        tensor = self._schema.TensorT()
        tensor.name, tensor.type, tensor.buffer = name, kind, buffer
        tensor.shape = np.array(shape, dtype=np.int32)
        tensor.shapeSignature = None if signature is None else np.array(signature, dtype=np.int32)
        if scales is not None:
            tensor.quantization = self._schema.QuantizationParametersT()
            tensor.quantization.scale = np.ascontiguousarray(scales.scale)
            tensor.quantization.zeroPoint = np.full(len(scales.scale), scales.zero_point, dtype=np.int64)
        self._tensors.append(tensor)
        return len(self._tensors) - 1


def pack_bits(weight: NDArray[np.generic], bit_width: int) -> NDArray[np.uint8]:
    """Signed integers of 4 or 2 bits as bytes, the first value in the lowest bits, without padding between rows."""
    per_byte = 8 // bit_width
    flat = weight.reshape(-1).astype(np.uint8) & ((1 << bit_width) - 1)
    flat = np.concatenate([flat, np.zeros(-len(flat) % per_byte, dtype=np.uint8)]).reshape(-1, per_byte)
    shifted = flat << (np.arange(per_byte, dtype=np.uint8) * bit_width)
    return np.asarray(np.bitwise_or.reduce(shifted, axis=1), dtype=np.uint8)
