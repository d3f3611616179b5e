"""A policy's net as the bytes of an .onnx file: QDQ form for integers, plain operators for float32.

Activations are uint8 (onnxruntime has integer kernels for those only), weights int8, biases int32. A ReLU is the lower
clip of a quantized output, and every other activation a table of 256 integers, so that no arithmetic on floats is left
once the runtime has fused the dequantizations. Images enter channel-last and are transposed inside.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import channel_last, list_reads, list_shapes
from quarl_bench.backends.onnx.cells import IntegerCell, add_float_cell
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.branches import Branch, find_stem, list_places
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Net
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.recurrent.cells import list_steps
from quarl_bench.quantization.recurrent.quantized import QuantizedCell
from quarl_bench.system.extras import require

IR_VERSION = 10  # what onnxruntime since 1.18 reads
OPSET = 21
NEXT = "next"  # ends the name of a part of the state behind the step
OPERATORS: dict[Activation, tuple[str, dict[str, str]]] = {  # of one node, with its attributes
    Activation.RELU: ("Relu", {}),
    Activation.TANH: ("Tanh", {}),
    Activation.ELU: ("Elu", {}),
    Activation.SELU: ("Selu", {}),
    Activation.GELU: ("Gelu", {"approximate": "none"}),
    Activation.GELU_TANH: ("Gelu", {"approximate": "tanh"}),
    Activation.LEAKY_RELU: ("LeakyRelu", {}),
    Activation.SOFTPLUS: ("Softplus", {}),
    Activation.SIGMOID: ("Sigmoid", {}),
    Activation.HARDSWISH: ("HardSwish", {}),
    Activation.SOFTSIGN: ("Softsign", {}),
}
CLIPS = {Activation.HARDTANH: (-1.0, 1.0), Activation.RELU6: (0.0, 6.0)}


def load_onnx() -> Any:
    """The onnx package; MissingExtra when it is not installed."""
    return require("onnx", "onnx", "writing .onnx files")


def write_integer_model(net: IntegerNet) -> bytes:
    """The QDQ file of a net whose activations are unsigned; DeploymentError for what the form cannot express."""
    reads = list_reads(net)
    graph = _OnnxGraph(list_shapes(net), integer=True)

    def add(index: int) -> None:
        layer = net.layers[index]
        add_layer = graph.add_wide_layer if layer.output.wide else graph.add_integer_layer
        add_layer(f"layers.{index}", layer, net.sources[index], reads[index])

    graph.join(net.branches, add)
    for index, cell in list_steps(net.layers, net.cells, find_stem(net.branches)):
        if isinstance(cell, QuantizedCell):
            IntegerCell(graph, net, cell, f"cells.{net.cells.index(cell)}").build()
            continue
        add(index)
    if net.output.wide or net.recurrent or net.branches:
        graph.describe_ports(net.input, net.output)
    return graph.finish()


def write_float_model(net: Net) -> bytes:
    """A float32 net as the bytes of an ONNX file, one operator a step, batch size left open."""
    reads = list_reads(net)
    graph = _OnnxGraph(list_shapes(net), integer=False)

    def add(index: int) -> None:
        name, layer = f"layers.{index}", net.layers[index]
        graph.flatten(layer.weight, reads[index])
        parameters = [
            graph.add_constant(f"{name}.weight", layer.weight),
            graph.add_constant(f"{name}.bias", layer.bias),
        ]
        stride = layer.stride if isinstance(layer, Conv2d) else None
        graph.add_affine(f"{name}.sum", [graph.last, *parameters], stride)
        graph.add_activation(f"{name}.activation", layer.activation)

    graph.join(net.branches, add)
    for index, cell in list_steps(net.layers, net.cells, net.stem):
        if cell is not None:
            add_float_cell(graph, net, cell, f"cells.{net.cells.index(cell)}")
            continue
        add(index)
    return graph.finish()


class _OnnxGraph:
    """A file under construction; `last` names the activation that the next operator reads."""

    def __init__(self, shapes: list[tuple[int, ...]], *, integer: bool) -> None:
        self._onnx = load_onnx()
        self._type = self._onnx.TensorProto.UINT8 if integer else self._onnx.TensorProto.FLOAT
        self._result = self._type
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._input, self._output = channel_last(shapes[0]), channel_last(shapes[-1])
        self.last = "input"
        self._ports: dict[str, ActivationFormat] = {}  # formats that no operator says
        self._states: list[tuple[str, int, int]] = []  # inputs for the state: name, type and width
        self._behind: dict[str, str] = {}  # what each becomes
        if len(self._input) == 3:
            self.add("Transpose", ["input"], "input.channel_first", perm=[0, 3, 1, 2])

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One node; its output becomes `last`."""
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], name=output, **attributes))
        self.last = output
        return output

    def add_all(self, operator: str, inputs: list[str], outputs: list[str], **attributes: Any) -> list[str]:
        """One node of several outputs, which it is named after; `last` stays what it was."""
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, outputs, name=outputs[0], **attributes))
        return outputs

    def add_state(self, name: str, dtype: type[np.generic], width: int) -> str:
        """An input (n, width) for a part of the state, beside `input`."""
        self._states.append((name, self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), width))
        return name

    def return_state(self, name: str, value: str) -> None:
        """What a part of the state becomes: an output beside `output`."""
        self._behind[name] = value

    def cast(self, value: str, dtype: type[np.generic], name: str) -> str:
        """The same numbers in another type."""
        return self.add("Cast", [value], name, to=self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def add_constant(self, name: str, values: NDArray[Any] | np.generic) -> str:
        """Add an initializer; its name is returned."""
        self._constants.append(self._onnx.numpy_helper.from_array(np.array(values, order="C"), name))
        return name

    def join(self, branches: Sequence[Branch], add: Callable[[int], None]) -> None:
        """The parts of the input, each through its own layers, which `add` adds, side by side; of a chain nothing."""
        if not branches:
            return
        places = [*list_places(branches)]
        widths = self.add_constant("parts.widths", np.array([place.branch.width for place in places], np.int64))
        names = [f"parts.{number}" for number in range(len(places))]
        ends = []
        for place, name in zip(places, self.add_all("Split", ["input", widths], names, axis=1), strict=True):
            self.last = name
            if place.layers and len(place.branch.shape) > 1:
                shape = self.add_constant(f"{name}.shape", np.array([-1, *place.branch.shape], np.int64))
                self.add("Reshape", [name, shape], f"{name}.image")
            for index in place.layers:
                add(index)
            ends.append(self.last)
        self.add("Concat", ends, "parts.joined", axis=1)

    def flatten(self, weight: NDArray[Any], shape: tuple[int, ...]) -> None:
        """Make a vector of an image, still quantized, in front of a fully connected layer."""
        if weight.ndim == 2 and len(shape) == 3:
            self.add("Flatten", [self.last], f"{self.last}.flat", axis=1)

    def add_affine(self, name: str, inputs: list[str], stride: int | None) -> None:
        """Input, weight and bias through a convolution with `stride`, or a fully connected layer for None."""
        if stride is None:
            self.add("Gemm", inputs, name, transB=1)
        else:
            self.add("Conv", inputs, name, strides=[stride, stride])

    def add_activation(self, name: str, activation: Activation) -> None:
        """A function of floats, as the fewest nodes of the standard."""
        if activation in OPERATORS:
            operator, attributes = OPERATORS[activation]
            self.add(operator, [self.last], name, **attributes)
        elif activation in CLIPS:
            bounds = zip(("lowest", "highest"), CLIPS[activation], strict=True)
            limits = [self.add_constant(f"{name}.{side}", np.float32(value)) for side, value in bounds]
            self.add("Clip", [self.last, *limits], name)
        elif activation is Activation.SILU:
            before = self.last
            self.add("Mul", [before, self.add("Sigmoid", [before], f"{name}.gate")], name)
        elif activation is not Activation.NONE:
            raise DeploymentError(f"onnx: no form of {activation}; use int8")

    def add_integer_layer(
        self, name: str, layer: QuantizedLayer, source: ActivationFormat, shape: tuple[int, ...]
    ) -> None:
        """A layer between its own dequantizations and its quantization, then what bounds or maps the integers."""
        self.flatten(layer.weight, shape)
        scale, output = layer.weight_scale, layer.output
        per_channel = {"axis": 0} if len(scale) > 1 else {}
        scale = scale if per_channel else scale.reshape(())
        zeros = np.zeros(scale.shape, dtype=np.int8)
        numbers: dict[str, tuple[str, Any, Any, dict[str, int]]] = {
            "x": (self.last, source.scale, np.uint8(source.zero_point), {}),
            "weight": (self.add_constant(f"{name}.weight", layer.weight), scale, zeros, per_channel),
            "bias": (
                self.add_constant(f"{name}.bias", layer.bias),
                source.scale * scale,
                zeros.astype(np.int32),
                per_channel,
            ),
        }
        inputs = [
            self.add(
                "DequantizeLinear",
                [of, *self._quantization(f"{name}.{part}", factor, zero)],
                f"{name}.{part}.float",
                **axis,
            )
            for part, (of, factor, zero, axis) in numbers.items()
        ]
        self.add_affine(f"{name}.sum", inputs, layer.stride if layer.kind is Conv2d else None)
        target = self._quantization(f"{name}.output", output.scale, np.uint8(output.zero_point))
        self.add("QuantizeLinear", [self.last, *target], f"{name}.output")
        if layer.lowest > 0 or output.format.maximum < 255:
            bounds = [
                self.add_constant(f"{name}.{side}", np.uint8(value))
                for side, value in (("lowest", layer.lowest), ("highest", output.format.maximum))
            ]
            self.add("Clip", [self.last, *bounds], f"{name}.clipped")
        self._ports = {} if layer.tabled is None else {"output": layer.tabled}
        if layer.tabled is not None:
            table = np.zeros(256, dtype=np.uint8)
            table[output.format.minimum : output.format.maximum + 1] = layer.table
            self.add("Cast", [self.last], f"{name}.index", to=self._onnx.TensorProto.INT32)
            self.add("Gather", [self.add_constant(f"{name}.table", table), self.last], f"{name}.tabled", axis=0)

    def add_wide_layer(
        self, name: str, layer: QuantizedLayer, source: ActivationFormat, shape: tuple[int, ...]
    ) -> None:
        """A last layer whose 32-bit sums are the output."""
        self.flatten(layer.weight, shape)
        self.add_products(name, layer, source)
        self._result = self._onnx.TensorProto.INT32

    def add_products(self, name: str, layer: QuantizedLayer, source: ActivationFormat) -> str:
        """Sums of 32 bits of a fully connected layer, bias included."""
        weight = self.add_constant(f"{name}.weight", layer.weight.T)
        zero_points = [
            self.add_constant(f"{name}.{part}.zero_point", value)
            for part, value in (("x", np.uint8(source.zero_point)), ("weight", np.int8(0)))
        ]
        self.add("MatMulInteger", [self.last, weight, *zero_points], f"{name}.products")
        return self.add("Add", [self.last, self.add_constant(f"{name}.bias", layer.bias)], f"{name}.sum")

    def describe_ports(self, source: ActivationFormat, output: ActivationFormat) -> None:
        """Write down what the integers of the input and of wide outputs mean."""
        self._ports = {"input": source, "output": output}

    def finish(self) -> bytes:
        """The file; the last activation is its output."""
        helper = self._onnx.helper
        if len(self._output) == 3:
            self.add("Transpose", [self.last], "output", perm=[0, 2, 3, 1])
        elif self._states:
            for name, value in {"output": self.last, **self._behind}.items():
                self.add("Identity", [value], name if name == "output" else f"{name}.{NEXT}")
        else:
            self._nodes[-1].output[0] = "output"
        ends = [("input", self._type, self._input), *((name, kind, (width,)) for name, kind, width in self._states)]
        results = [("output", self._result, self._output)]
        results += [(f"{name}.{NEXT}", kind, (width,)) for name, kind, width in self._states]
        inputs, outputs = (
            [helper.make_tensor_value_info(name, kind, ["n", *shape]) for name, kind, shape in ports]
            for ports in (ends, results)
        )
        graph = helper.make_graph(self._nodes, "policy", inputs, outputs, self._constants)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="quarl_bench")
        helper.set_model_props(
            model,
            {
                f"{port}.{name}": str(getattr(found, name))
                for port, found in self._ports.items()
                for name in ("scale", "zero_point")
            },
        )
        self._onnx.checker.check_model(model)
        return bytes(model.SerializeToString())

    def _quantization(
        self, name: str, scale: NDArray[Any] | np.generic, zero_point: NDArray[Any] | np.generic
    ) -> list[str]:
        return [
            self.add_constant(f"{name}.scale", np.asarray(scale, dtype=np.float32)),
            self.add_constant(f"{name}.zero_point", np.asarray(zero_point)),
        ]
