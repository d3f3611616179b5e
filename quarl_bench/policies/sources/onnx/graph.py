"""From an ONNX graph that is a chain to the layers of a net: what stands in front, the layers, what stands behind.

In front: elementwise normalization and a symmetric clip. Then Gemm, MatMul, Conv and BatchNormalization, with shifts
and scales folded into them and activations behind; a cell is such a layer, and `Gates` with the other one behind it.
At the end: a part of the outputs (Split, Slice), and a clip.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.onnx.chain import Chain
from quarl_bench.policies.sources.onnx.functions import FUNCTIONS, find_function
from quarl_bench.policies.sources.onnx.nodes import FLOATS, Doubles, Graph, Node, read_linear
from quarl_bench.policies.sources.onnx.shapes import SHAPES, follow_rank, is_last, is_plain, takes_the_only
from quarl_bench.policies.sources.onnx.walk import Walk
from quarl_bench.quantization.net import Conv2d, Linear
from quarl_bench.quantization.recurrent.cells import Cell, CellKind

CHOICES = {"Softmax": -1, "LogSoftmax": -1, "ArgMax": 0}  # only at the end; their axes where none is named
PASSED = ("Identity", "Dropout", "Cast", *CHOICES)
BOOL = 9  # ONNX's type
ARITHMETIC = ("Add", "Sub", "Mul", "Div")


def read_chain(graph: Graph) -> Chain:
    """The chain of layers; PolicyError, naming the node, for a graph that is none."""
    try:
        return _follow(graph)
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        said = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise PolicyError(f"{graph.where}: a node has inputs or attributes of no known form ({said})") from error


def _follow(graph: Graph) -> Chain:
    walk, tensor = Walk(graph, rank=graph.rank), graph.input
    while tensor != graph.output:
        nodes = graph.consumers(tensor)
        if not nodes:
            raise PolicyError(f"{graph.where}: no node reads {tensor[:80]!r}; the graph is no chain")
        if len(nodes) == 1 and walk.indices:
            tensor = _leave(walk, nodes[0])
        elif len(nodes) == 1 and (step := _take(walk, nodes[0], tensor)):
            tensor = step
        elif len(nodes) > 1 and not all(node.operator in FUNCTIONS for node in nodes):
            raise walk.refuse(nodes[0], "begins one of several branches; a policy is a chain of layers")
        elif not walk.layers:
            raise walk.refuse(nodes[0], "stands in front of all layers; known there are Sub, Div, Mul, Add and Clip")
        else:
            walk.settle(nodes[0])
            activation, tensor = find_function(graph, tensor)
            if not walk.open:
                raise walk.refuse(nodes[0], "follows another activation, and a layer has one")
            walk.layers[-1] = replace(walk.layers[-1], activation=activation)
    if not walk.layers:
        raise PolicyError(f"{graph.where}: no Gemm, MatMul or Conv between {graph.input[:40]!r} and its output")
    walk.settle(graph.nodes[-1])
    return Chain(
        tuple(walk.layers), walk.normalization, walk.bounds, walk.indices, tuple(walk.cells), graph.shape, walk.turned
    )


def _leave(walk: Walk, node: Node) -> str:
    """Pass a node behind the choice of an action, which leaves it as it is, and return the tensor that it gives."""
    if node.operator not in (*PASSED, *SHAPES):
        raise walk.refuse(node, "stands behind the choice of an action; export the network without it")
    if node.operator in PASSED:
        _pass(walk, node)
    return node.outputs[0]


def _take(walk: Walk, node: Node, tensor: str) -> str | None:
    """Take one node into the chain, and return the tensor that it gives; None for an activation's beginning."""
    constants = walk.graph.constants
    others = [name for name in node.inputs if name and name != tensor]
    known = all(name in constants for name in others)
    if node.operator in PASSED:
        _pass(walk, node)
    elif node.operator in SHAPES:
        _follow_shape(walk, node)
    elif not known:
        raise walk.refuse(node, "joins two branches; a policy is a chain of layers")
    elif node.operator in LAYERS:
        LAYERS[node.operator](walk, node, tensor)
    elif node.operator == "BatchNormalization":
        _take_norm(walk, node)
    elif node.operator in ARITHMETIC and len(others) == 1:
        _calculate(walk, node, tensor)
    elif node.operator in PARTS:
        return PARTS[node.operator](walk, node, tensor)
    else:
        return None
    return node.outputs[0]


def _pass(walk: Walk, node: Node) -> None:
    """Refuse what does not leave the numbers, or at the end their order, as they are."""
    given, last = node.attributes, node.operator in CHOICES
    if node.operator == "Cast":
        if given.get("to") not in FLOATS and not walk.indices:
            raise walk.refuse(node, "rounds to whole numbers; export the network without it")
        if given.get("to") == BOOL:
            raise walk.refuse(node, "makes true and false of an index; export the network without it")
    if node.operator == "Dropout" and any(walk.graph.constants[name].any() for name in node.inputs[2:] if name):
        raise walk.refuse(node, "drops numbers; export the network in evaluation mode")
    if last and not is_last(given.get("axis", CHOICES[node.operator]), walk.rank):
        raise walk.refuse(node, "goes along another axis than the outputs")
    if given.get("select_last_index", 0):
        raise walk.refuse(node, "takes the last of equal outputs; policies take the first")
    walk.indices |= last


def _take_norm(walk: Walk, node: Node) -> None:
    """Batch normalization by constants."""
    if walk.rank > 2:
        raise walk.refuse(node, "normalizes another axis than the features")
    if node.attributes.get("training_mode", 0):
        raise walk.refuse(node, "normalizes by the batch; export the network in evaluation mode")
    scale, shift, mean, variance = (walk.graph.constants[name].astype(np.float64) for name in node.inputs[1:5])
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    walk.channels = bool(walk.layers) and isinstance(walk.layers[-1], Conv2d)
    walk.move(node, factor, shift - mean * factor)


def _calculate(walk: Walk, node: Node, tensor: str) -> None:
    """Add, Sub, Mul or Div by constants."""
    first, second = node.inputs
    value = walk.graph.constants[second if first == tensor else first].astype(np.float64)
    walk.rank = max(walk.rank, value.ndim) if walk.rank else 0
    if value.ndim > 1 and value.size not in (value.shape[-1], 1 if walk.rank or value.ndim < 3 else max(value.shape)):
        raise walk.refuse(node, f"has a constant of shape {value.shape}; one number for each feature is known")
    if value.size > 1:
        channels = value.ndim > 2 and value.shape[-2:] == (1, 1)
        if channels is not walk.channels and max(walk.scale.size, walk.shift.size) > 1:
            raise walk.refuse(node, "moves the numbers along another axis than the node in front of it")
        walk.channels = channels
    value, one, zero = value.reshape(-1), np.ones(1), np.zeros(1)
    if node.operator == "Add":
        walk.move(node, one, value)
    elif node.operator == "Mul":
        walk.move(node, value, zero)
    elif node.operator == "Sub":
        walk.move(node, *((one, -value) if first == tensor else (-one, value)))
    elif first == tensor and (value != 0).all():
        walk.move(node, 1 / value, zero)
    else:
        raise walk.refuse(node, "divides a constant by the policy's numbers, or by zero")


def _add_layer(walk: Walk, node: Node, tensor: str) -> None:
    if walk.bounds is not None:
        raise walk.refuse(node, "stands behind a clip; known is one in front of all layers, and one at the end")
    if node.inputs[0] != tensor:
        raise walk.refuse(node, "multiplies from the left; export rows of observations times weights")
    if walk.open:
        walk.settle(node)
    elif not walk.layers and walk.normalization is None and node.operator != "Conv":
        walk.normalize()
    weight, bias, stride = _read_affine(walk, node)
    if walk.scale.size > 1 or walk.scale != 1 or walk.shift.size > 1 or walk.shift != 0:
        weight, bias = _fold_front(walk, node, weight, bias)
    numbers = weight.astype(np.float32), bias.astype(np.float32)
    walk.layers.append(Linear(*numbers) if stride is None else Conv2d(*numbers, stride))


def _add_cell(walk: Walk, node: Node, tensor: str) -> None:
    """Of a program of TorchScript, whose node has weights and biases of both layers as constants."""
    _add_layer(walk, Node("Gemm", node.name, node.inputs[:3], node.outputs, {"transB": 1}), tensor)
    _add_gates(walk, Node("Gates", node.name, (node.outputs[0], *node.inputs[3:]), node.outputs, node.attributes))


def _add_gates(walk: Walk, node: Node) -> None:
    """The second layer of a cell, which maps the hidden state; the last layer's sums are what the cell reads."""
    walk.settle(node)
    if not walk.open or walk.bounds is not None or not isinstance(walk.layers[-1], Linear):
        raise walk.refuse(node, "stands behind no layer's sums")
    weight, bias = (walk.graph.constants[name].astype(np.float32) for name in node.inputs[1:])
    walk.cells.append(Cell(CellKind(node.attributes["kind"]), len(walk.layers) - 1))
    walk.layers.append(Linear(weight, bias))
    walk.sealed = len(walk.layers)


def _leave_cell(walk: Walk, node: Node, _: str) -> str:
    """Add a cell, and return the tensor of its hidden state that is read."""
    _add_gates(walk, node)
    ranks = node.attributes.get("ranks", (walk.rank,))
    read = [
        (name, rank)
        for name, rank in zip(node.outputs, ranks, strict=True)
        if name and (name == walk.graph.output or walk.graph.consumers(name))
    ]
    if len(read) != 1:
        raise walk.refuse(node, f"is read in {len(read)} ways; a policy is a chain of layers")
    walk.rank = read[0][1]
    return read[0][0]


LAYERS = {"Gemm": _add_layer, "MatMul": _add_layer, "Conv": _add_layer, "Cell": _add_cell}


def _fold_front(walk: Walk, node: Node, weight: Doubles, bias: Doubles) -> tuple[Doubles, Doubles]:
    """A layer that reads scale * x + shift, as one that reads x."""
    inputs = weight.shape[1]
    sizes = {walk.scale.size, walk.shift.size} - {1}
    if sizes - {inputs}:
        raise walk.refuse(node, f"has {inputs} inputs behind {max(sizes)} numbers that scale or shift them")
    walk.check_axis(node, weight.ndim == 4)
    axes = (1, -1) + (1,) * (weight.ndim - 2)
    bias = bias + (weight * np.broadcast_to(walk.shift, inputs).reshape(axes)).sum(tuple(range(1, weight.ndim)))
    weight = weight * np.broadcast_to(walk.scale, inputs).reshape(axes)
    walk.scale, walk.shift = np.ones(1), np.zeros(1)
    return weight, bias


def _read_affine(walk: Walk, node: Node) -> tuple[Doubles, Doubles, int | None]:
    """Weight (outputs, inputs, ...), bias (outputs,), and the stride of a convolution."""
    constants, given = walk.graph.constants, node.attributes
    if node.operator == "Conv":
        weight = constants[node.inputs[1]].astype(np.float64)
        strides, pads = given.get("strides", [1, 1]), given.get("pads", [0])
        unpadded = not any(pads) and given.get("auto_pad", b"NOTSET") in (b"NOTSET", b"VALID")
        plain = unpadded and given.get("group", 1) == 1 and set(given.get("dilations", [1])) == {1}
        if weight.ndim != 4 or not plain or len(set(strides)) != 1:
            raise walk.refuse(node, "has no portable form: two axes, no padding, dilation or groups, one stride")
        bias = np.zeros(len(weight))
        if len(node.inputs) > 2 and node.inputs[2]:
            bias = bias + constants[node.inputs[2]].astype(np.float64).reshape(-1)
        return weight, bias, int(strides[0])
    try:
        return *read_linear(node, constants), None
    except ValueError as error:
        raise walk.refuse(node, str(error)) from error


def _select(walk: Walk, node: Node, tensor: str) -> str:
    """A part of the last layer's outputs: the means, where SDs stand beside them."""
    walk.settle(node)
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
        if len(used) != 1 or not is_last(given.get("axis", 0), walk.rank):
            raise walk.refuse(node, "parts the policy into branches; a policy is a chain of layers")
        ends = np.cumsum(sizes)
        columns, output = columns[: ends[used[0]]][int(ends[used[0]] - sizes[used[0]]) :], node.outputs[used[0]]
    elif node.operator == "Slice":
        named = enumerate(("starts", "ends"))
        starts, stops = (given.get(name, numbers[i] if i < len(numbers) else []) for i, name in named)
        axes = given.get("axes", numbers[2] if len(numbers) > 2 else range(len(starts)))
        steps = numbers[3] if len(numbers) > 3 else np.ones(1)
        if len(axes) != 1 or not is_last(axes[0], walk.rank) or (steps != 1).any():
            raise walk.refuse(node, "takes no plain part of the outputs")
        columns = columns[int(starts[0]) : int(stops[0])]
    elif is_last(given.get("axis", 0), walk.rank):
        columns = columns[numbers[0].astype(np.int64)]
    else:
        raise walk.refuse(node, "takes no plain part of the outputs")
    walk.layers[-1] = replace(layer, weight=layer.weight[columns], bias=layer.bias[columns])
    return output


def _clip(walk: Walk, node: Node, _: str) -> str | None:
    """A clip in front of all layers, or at the end; None for one that is an activation."""
    constants, given = walk.graph.constants, node.attributes
    values = [float(constants[name].reshape(())) if name else None for name in node.inputs[1:]] + [None, None]
    low = given.get("min", -np.inf) if values[0] is None else values[0]
    high = given.get("max", np.inf) if values[1] is None else values[1]
    if not walk.layers:
        if low != -high or high <= 0 or walk.normalization is not None:
            raise walk.refuse(node, f"clips observations to {low:g}..{high:g}; known is one symmetric clip")
        walk.normalize(high)
        if walk.normalization is None and high != np.inf:
            raise walk.refuse(node, "clips observations whose factors are not all positive")
        return node.outputs[0]
    if node.outputs[0] == walk.graph.output and walk.bounds is None:
        walk.settle(node)
        walk.bounds = (low, high)
        return node.outputs[0]
    return None


def _follow_shape(walk: Walk, node: Node) -> None:
    """Refuse a node that does more than flatten, or with a memory more than move axes of size 1."""
    constants = walk.graph.constants
    if not walk.rank and is_plain(node, constants, first=not walk.layers):
        walk.turned |= node.operator == "Transpose"
        return
    walk.rank = walk.rank and follow_rank(node, constants, walk.rank, walk.width)
    if not walk.rank:
        raise walk.refuse(node, "reshapes by more than flattening; export a batch of observations in rows")


def _gather(walk: Walk, node: Node, tensor: str) -> str:
    """A part of the outputs, or the one observation of several axes."""
    if walk.rank < 3 or is_last(node.attributes.get("axis", 0), walk.rank):
        return _select(walk, node, tensor)
    if not takes_the_only(node, walk.graph.constants):
        raise walk.refuse(node, "takes no plain part of one observation")
    walk.rank -= 1
    return node.outputs[0]


PARTS: dict[str, Callable[[Walk, Node, str], str | None]] = {
    "Split": _select,
    "Slice": _select,
    "Gather": _gather,
    "Clip": _clip,
    "Gates": _leave_cell,
}
