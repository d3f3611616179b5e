"""From an ONNX graph that is a chain to the layers of a net: what stands in front, the layers, what stands behind.

In front: elementwise normalization and a symmetric clip. Then Gemm, MatMul, Conv and BatchNormalization, with shifts
and scales folded into them and activations behind. At the end: a part of the outputs (Split, Slice), and a clip.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import TINY, Normalization
from quarl_bench.policies.sources.onnx.chain import Chain
from quarl_bench.policies.sources.onnx.file import Graph, Node
from quarl_bench.policies.sources.onnx.functions import FUNCTIONS, find_function
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Layer, Linear
from quarl_bench.quantization.recurrent.cells import Cell, CellKind

Doubles = NDArray[np.float64]
PASSED = ("Identity", "Dropout", "Cast", "Softmax", "LogSoftmax", "ArgMax")  # the last three only at the end
SHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
ARITHMETIC = ("Add", "Sub", "Mul", "Div")
FLOATS = (1, 10, 11, 16)  # types of ONNX: float32, float16, float64, bfloat16


@dataclass(eq=False)
class _Walk:
    """A place in the graph: the layers so far, and scale and shift (numbers or one per feature) not yet in one."""

    graph: Graph
    layers: list[Layer] = field(default_factory=list)
    scale: Doubles = field(default_factory=lambda: np.ones(1))
    shift: Doubles = field(default_factory=lambda: np.zeros(1))
    normalization: Normalization | None = None
    bounds: tuple[float, float] | None = None
    indices: bool = False
    cells: list[Cell] = field(default_factory=list)
    sealed: int = 0  # how many layers a cell has ended
    channels: bool = False  # whether the numbers are one for each channel of an image, and not for each feature

    @property
    def open(self) -> bool:
        """Whether the last layer's sums are still without an activation."""
        return bool(self.layers[self.sealed :]) and self.layers[-1].activation is Activation.NONE

    def refuse(self, node: Node, why: str) -> PolicyError:
        return PolicyError(f"{self.graph.where}: {node} {why}")


def read_chain(graph: Graph) -> Chain:
    """The chain of layers; PolicyError, naming the node, for a graph that is none."""
    try:
        return _follow(graph)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        said = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise PolicyError(f"{graph.where}: a node has inputs or attributes of no known form ({said})") from error


def _follow(graph: Graph) -> Chain:
    walk, tensor = _Walk(graph), graph.input
    while tensor != graph.output:
        nodes = graph.consumers(tensor)
        if not nodes:
            raise PolicyError(f"{graph.where}: no node reads {tensor[:80]!r}; the graph is no chain")
        if len(nodes) == 1 and walk.indices:
            if nodes[0].operator not in (*PASSED, *SHAPES):
                raise walk.refuse(nodes[0], "stands behind the choice of an action; export the network without it")
            tensor = nodes[0].outputs[0]
        elif len(nodes) == 1 and (step := _take(walk, nodes[0], tensor)):
            tensor = step
        elif len(nodes) > 1 and not all(node.operator in FUNCTIONS for node in nodes):
            raise walk.refuse(nodes[0], "begins one of several branches; a policy is a chain of layers")
        elif not walk.layers:
            raise walk.refuse(nodes[0], "stands in front of all layers; known there are Sub, Div, Mul, Add and Clip")
        else:
            _settle(walk, nodes[0])
            activation, tensor = find_function(graph, tensor)
            if not walk.open:
                raise walk.refuse(nodes[0], "follows another activation, and a layer has one")
            walk.layers[-1] = replace(walk.layers[-1], activation=activation)
    if not walk.layers:
        raise PolicyError(f"{graph.where}: no Gemm, MatMul or Conv between {graph.input[:40]!r} and its output")
    _settle(walk, graph.nodes[-1])
    return Chain(tuple(walk.layers), walk.normalization, walk.bounds, walk.indices, tuple(walk.cells))


def _take(walk: _Walk, node: Node, tensor: str) -> str | None:
    """Take one node into the chain, and return the tensor that it gives; None for an activation's beginning."""
    constants = walk.graph.constants
    others = [name for name in node.inputs if name and name != tensor]
    known = all(name in constants for name in others)
    if node.operator in PASSED:
        if node.operator == "Cast" and node.attributes.get("to") not in FLOATS and not walk.indices:
            raise walk.refuse(node, "rounds to whole numbers; export the network without it")
        walk.indices |= node.operator in ("Softmax", "LogSoftmax", "ArgMax")
    elif node.operator in SHAPES or node.operator == "Transpose":
        _check_shape(walk, node)
    elif not known:
        raise walk.refuse(node, "joins two branches; a policy is a chain of layers")
    elif node.operator in LAYERS:
        LAYERS[node.operator](walk, node, tensor)
    elif node.operator == "BatchNormalization":
        scale, shift, mean, variance = (constants[name].astype(np.float64) for name in node.inputs[1:5])
        factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
        walk.channels = bool(walk.layers) and isinstance(walk.layers[-1], Conv2d)
        _shift(walk, node, factor, shift - mean * factor)
    elif node.operator in ARITHMETIC and len(others) == 1:
        _calculate(walk, node, tensor)
    elif node.operator in ("Split", "Slice", "Gather"):
        return _select(walk, node, tensor)
    elif node.operator == "Clip":
        return _clip(walk, node)
    else:
        return None
    return node.outputs[0]


def _calculate(walk: _Walk, node: Node, tensor: str) -> None:
    """Add, Sub, Mul or Div by constants."""
    first, second = node.inputs
    value = walk.graph.constants[second if first == tensor else first].astype(np.float64)
    if value.ndim > 1 and value.size != max(value.shape):
        raise walk.refuse(node, f"has a constant of shape {value.shape}; one number for each feature is known")
    if value.size > 1:
        walk.channels = value.ndim > 2 and value.shape[-2:] == (1, 1)
    value, one, zero = value.reshape(-1), np.ones(1), np.zeros(1)
    if node.operator == "Add":
        _shift(walk, node, one, value)
    elif node.operator == "Mul":
        _shift(walk, node, value, zero)
    elif node.operator == "Sub":
        _shift(walk, node, *((one, -value) if first == tensor else (-one, value)))
    elif first == tensor and (value != 0).all():
        _shift(walk, node, 1 / value, zero)
    else:
        raise walk.refuse(node, "divides a constant by the policy's numbers, or by zero")


def _shift(walk: _Walk, node: Node, scale: Doubles, shift: Doubles) -> None:
    if walk.bounds is not None:
        raise walk.refuse(node, "follows the clip of the actions; export the network without it")
    try:
        walk.scale, walk.shift = walk.scale * scale, walk.shift * scale + shift
    except ValueError as error:
        raise walk.refuse(node, f"has {scale.size} and {shift.size} numbers for {walk.scale.size}") from error


def _settle(walk: _Walk, node: Node) -> None:
    """Fold scale and shift into the layer in front of them."""
    if (walk.scale == 1).all() and (walk.shift == 0).all():
        return
    if not walk.open:
        raise walk.refuse(node, "stands behind a scale or shift that follows an activation")
    layer = walk.layers[-1]
    outputs = len(layer.bias)
    if walk.scale.size not in (1, outputs) or walk.shift.size not in (1, outputs):
        raise walk.refuse(node, f"stands behind numbers for {walk.scale.size} of {outputs} outputs")
    _check_axis(walk, node, isinstance(layer, Conv2d))
    scale = np.broadcast_to(walk.scale, outputs)
    weight = layer.weight * scale.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
    bias = layer.bias * scale + walk.shift
    walk.layers[-1] = replace(layer, weight=weight.astype(np.float32), bias=bias.astype(np.float32))
    walk.scale, walk.shift = np.ones(1), np.zeros(1)


def _add_layer(walk: _Walk, node: Node, tensor: str) -> None:
    if walk.bounds is not None:
        raise walk.refuse(node, "stands behind a clip; known is one in front of all layers, and one at the end")
    if node.inputs[0] != tensor:
        raise walk.refuse(node, "multiplies from the left; export rows of observations times weights")
    if walk.open:
        _settle(walk, node)
    elif not walk.layers and walk.normalization is None and node.operator != "Conv":
        _normalize(walk)
    weight, bias, stride = _read_affine(walk, node)
    if walk.scale.size > 1 or walk.scale != 1 or walk.shift.size > 1 or walk.shift != 0:
        weight, bias = _fold_front(walk, node, weight, bias)
    numbers = weight.astype(np.float32), bias.astype(np.float32)
    walk.layers.append(Linear(*numbers) if stride is None else Conv2d(*numbers, stride))


def _add_cell(walk: _Walk, node: Node, tensor: str) -> None:
    """Of a program of TorchScript, whose node has weights and biases of both layers as constants."""
    _add_layer(walk, Node("Gemm", node.name, node.inputs[:3], node.outputs, {"transB": 1}), tensor)
    weight, bias = (walk.graph.constants[name].astype(np.float32) for name in node.inputs[3:])
    walk.cells.append(Cell(CellKind(node.attributes["kind"]), len(walk.layers) - 1))
    walk.layers.append(Linear(weight, bias))
    walk.sealed = len(walk.layers)


LAYERS = {"Gemm": _add_layer, "MatMul": _add_layer, "Conv": _add_layer, "Cell": _add_cell}


def _fold_front(walk: _Walk, node: Node, weight: Doubles, bias: Doubles) -> tuple[Doubles, Doubles]:
    """A layer that reads scale * x + shift, as one that reads x."""
    inputs = weight.shape[1]
    sizes = {walk.scale.size, walk.shift.size} - {1}
    if sizes - {inputs}:
        raise walk.refuse(node, f"has {inputs} inputs behind {max(sizes)} numbers that scale or shift them")
    _check_axis(walk, node, weight.ndim == 4)
    axes = (1, -1) + (1,) * (weight.ndim - 2)
    bias = bias + (weight * np.broadcast_to(walk.shift, inputs).reshape(axes)).sum(tuple(range(1, weight.ndim)))
    weight = weight * np.broadcast_to(walk.scale, inputs).reshape(axes)
    walk.scale, walk.shift = np.ones(1), np.zeros(1)
    return weight, bias


def _check_axis(walk: _Walk, node: Node, image: bool) -> None:
    """Refuse numbers for each column of an image, which broadcast along another axis than channels."""
    if max(walk.scale.size, walk.shift.size) > 1 and walk.channels is not image:
        raise walk.refuse(node, "meets numbers along another axis than channels (of images) or features")


def _normalize(walk: _Walk, clip: float = np.inf) -> None:
    """Scale and shift in front of the first layer, as statistics of observations."""
    plain = (walk.scale == 1).all() and (walk.shift == 0).all()
    if (plain and clip == np.inf) or not (walk.scale > 0).all():
        return
    scale, shift = np.broadcast_arrays(walk.scale, walk.shift)
    walk.normalization = Normalization(-shift / scale, 1 / scale**2, clip, TINY)
    walk.scale, walk.shift = np.ones(1), np.zeros(1)


def _read_affine(walk: _Walk, node: Node) -> tuple[Doubles, Doubles, int | None]:
    """Weight (outputs, inputs, ...), bias (outputs,), and the stride of a convolution."""
    constants, given = walk.graph.constants, node.attributes
    weight = constants[node.inputs[1]].astype(np.float64)
    if node.operator == "Conv":
        strides, pads = given.get("strides", [1, 1]), given.get("pads", [0])
        unpadded = not any(pads) and given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
        plain = unpadded and given.get("group", 1) == 1 and set(given.get("dilations", [1])) == {1}
        if weight.ndim != 4 or not plain or len(set(strides)) != 1:
            raise walk.refuse(node, "has no portable form: two axes, no padding, dilation or groups, one stride")
        stride = int(strides[0])
    else:
        stride = None
        if weight.ndim != 2 or given.get("transA", 0):
            raise walk.refuse(node, f"has weights of shape {weight.shape}; two axes are known")
        transposed = node.operator == "Gemm" and given.get("transB", 0)
        weight = (weight if transposed else weight.T) * given.get("alpha", 1.0)
    bias = np.zeros(len(weight))
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = bias + constants[node.inputs[2]].astype(np.float64).reshape(-1) * given.get("beta", 1.0)
    return weight, bias, stride


def _select(walk: _Walk, node: Node, tensor: str) -> str:
    """A part of the last layer's outputs: the means, where SDs stand beside them."""
    _settle(walk, node)
    if not walk.open or not isinstance(walk.layers[-1], Linear):
        raise walk.refuse(node, "takes a part of what is no layer's output")
    layer, constants, given = walk.layers[-1], walk.graph.constants, node.attributes
    columns = np.arange(len(layer.bias))
    output = node.outputs[0]
    numbers = [constants[name].reshape(-1) for name in node.inputs if name and name != tensor]
    if node.operator == "Split":
        used = [i for i, name in enumerate(node.outputs) if name == walk.graph.output or walk.graph.consumers(name)]
        equal = [-(-len(columns) // len(node.outputs))] * len(node.outputs)
        sizes = given.get("split", numbers[0] if numbers else equal)
        if len(used) != 1 or given.get("axis", 0) not in (1, -1):
            raise walk.refuse(node, "parts the policy into branches; a policy is a chain of layers")
        ends = np.cumsum(sizes)
        columns, output = columns[: ends[used[0]]][int(ends[used[0]] - sizes[used[0]]) :], node.outputs[used[0]]
    elif node.operator == "Slice":
        named = enumerate(("starts", "ends"))
        starts, stops = (given.get(name, numbers[i] if i < len(numbers) else []) for i, name in named)
        axes = given.get("axes", numbers[2] if len(numbers) > 2 else range(len(starts)))
        steps = numbers[3] if len(numbers) > 3 else np.ones(1)
        if list(axes) not in ([1], [-1]) or (steps != 1).any():
            raise walk.refuse(node, "takes no plain part of the outputs")
        columns = columns[int(starts[0]) : int(stops[0])]
    elif given.get("axis", 0) in (1, -1):
        columns = columns[numbers[0].astype(np.int64)]
    else:
        raise walk.refuse(node, "takes no plain part of the outputs")
    walk.layers[-1] = replace(layer, weight=layer.weight[columns], bias=layer.bias[columns])
    return output


def _clip(walk: _Walk, node: Node) -> str | None:
    """A clip in front of all layers, or at the end; None for one that is an activation."""
    constants, given = walk.graph.constants, node.attributes
    values = [float(constants[name].reshape(())) if name else None for name in node.inputs[1:]] + [None, None]
    low = given.get("min", -np.inf) if values[0] is None else values[0]
    high = given.get("max", np.inf) if values[1] is None else values[1]
    if not walk.layers:
        if low != -high or high <= 0 or walk.normalization is not None:
            raise walk.refuse(node, f"clips observations to {low:g}..{high:g}; known is one symmetric clip")
        _normalize(walk, high)
        if walk.normalization is None and high != np.inf:
            raise walk.refuse(node, "clips observations whose factors are not all positive")
        return node.outputs[0]
    if node.outputs[0] == walk.graph.output and walk.bounds is None:
        _settle(walk, node)
        walk.bounds = (low, high)
        return node.outputs[0]
    return None


def _check_shape(walk: _Walk, node: Node) -> None:
    """Refuse reshapes that do more than flatten what follows the batch."""
    if node.operator == "Flatten" and node.attributes.get("axis", 1) == 1:
        return
    if node.operator == "Reshape":
        shape = walk.graph.constants.get(node.inputs[1])
        if shape is not None and len(shape.reshape(-1)) == 2:
            return
    if node.operator == "Transpose" and not walk.layers and list(node.attributes.get("perm", [])) == [0, 3, 1, 2]:
        return
    raise walk.refuse(node, "reshapes by more than flattening; export a batch of observations in rows")
