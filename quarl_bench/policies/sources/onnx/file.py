"""An ONNX file as plain values: nodes, constants, and the way to its output. Nothing of it is executed.

The file is read by protobuf alone; weights that lie in other files are refused, because a path in a stranger's file may
lead anywhere.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.system.extras import require

LIMIT = 2**28  # bytes of a file
NODES = 4096
OLDEST = 9  # of opsets
INTEGERS = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QGemm",
            "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")  # fmt: skip
RECURRENT = ("LSTM", "GRU", "RNN", "Loop", "Scan")
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: the names of what it reads and gives, and its attributes."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        return f"node {self.name[:80]!r} ({self.operator[:40]})"


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes on the way from `input` to `output`, in order, and the constants that they read."""

    where: str
    input: str
    output: str
    nodes: tuple[Node, ...]
    constants: dict[str, Array]

    def consumers(self, tensor: str) -> list[Node]:
        """The nodes that read a tensor."""
        return [node for node in self.nodes if tensor in node.inputs]


def read_graph(data: bytes, where: str, output: str | None = None) -> Graph:
    """The graph in the bytes of an .onnx file, on the way to `output`, or its only one.

    PolicyError for files that are damaged, too old, quantized already, recurrent, or in more than one part.
    """
    onnx = require("onnx", "onnx", "reading .onnx files")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's errors have no common base
        raise PolicyError(f"{where}: not an ONNX file, or damaged ({type(error).__name__}); export it again") from error
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < OLDEST:
        raise PolicyError(f"{where}: of opset {opset}; export it again with opset {OLDEST} or later")
    graph = model.graph
    if len(graph.node) > NODES or len(model.functions):
        raise PolicyError(f"{where}: {len(graph.node)} nodes and {len(model.functions)} functions; a policy has fewer")
    try:
        nodes = [_read_node(onnx, node, where) for node in graph.node]
        stored = {tensor.name: tensor for tensor in graph.initializer}
        constants = {
            node.outputs[0]: _read_constant(onnx, node, where) for node in nodes if node.operator == "Constant"
        }
        names = [value.name for value in graph.input if value.name not in stored]
        wanted = choose_output([value.name for value in graph.output], output, where)
        needed = find_needed([node for node in nodes if node.operator != "Constant"], wanted)
        for name in {name for node in needed for name in node.inputs if name in stored}:
            constants[name] = _read_tensor(onnx, stored[name], where)
    except PolicyError:
        raise
    except Exception as error:  # a damaged file raises almost anything
        raise PolicyError(f"{where}: damaged ({type(error).__name__}); export it again") from error
    read = [name for name in names if any(name in node.inputs for node in needed)]
    if len(read) != 1:
        raise PolicyError(
            f"{where}: {len(read)} inputs ({', '.join(read)[:80]}), and a policy reads its observation alone"
        )
    return Graph(where, read[0], wanted, tuple(needed), constants)


def _read_node(onnx: Any, node: Any, where: str) -> Node:
    read = Node(
        node.op_type,
        node.name or (node.output[0] if node.output else "?"),
        tuple(node.input),
        tuple(node.output),
        {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute},
    )
    if node.op_type in INTEGERS:
        raise PolicyError(f"{where}: {read} computes on integers: the file is quantized already; pass the float one")
    if node.op_type in RECURRENT:
        raise PolicyError(f"{where}: {read} is recurrent, and only chains of layers have a portable form")
    if node.domain not in ("", "ai.onnx"):
        raise PolicyError(f"{where}: {read} is of the domain {node.domain[:40]!r}; export with standard operators only")
    return read


def _read_constant(onnx: Any, node: Node, where: str) -> Array:
    for name, value in node.attributes.items():
        if name == "value":
            return _read_tensor(onnx, value, where)
        if name in ("value_float", "value_int", "value_floats", "value_ints"):
            return np.asarray(value)
    raise PolicyError(f"{where}: {node} holds no numbers; export it again")


def _read_tensor(onnx: Any, tensor: Any, where: str) -> Array:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise PolicyError(
            f"{where}: the numbers of {tensor.name[:80]!r} lie in another file, which is not opened; save one file"
        )
    if np.prod([float(n) for n in tensor.dims]) * 2 > LIMIT:
        raise PolicyError(f"{where}: {tensor.name[:80]!r} claims the shape {tuple(tensor.dims)[:4]}; it is refused")
    return np.asarray(onnx.numpy_helper.to_array(tensor))


def choose_output(outputs: list[str], named: str | None, where: str) -> str:
    """The output that is the action; PolicyError where that has to be asked."""
    if named is not None and named in outputs:
        return named
    if len(outputs) == 1 and named is None:
        return outputs[0]
    said = ", ".join(outputs)[:120]
    if named is None:
        raise PolicyError(f"{where}: outputs {said}; name the one that is the action, with --arch NAME")
    raise PolicyError(f"{where}: no output {named!r}; there are {said}")


def find_needed(nodes: list[Node], output: str) -> list[Node]:
    """The nodes that the output depends on, in the order of the file."""
    makers = {name: node for node in nodes for name in node.outputs}
    found: set[int] = set()
    waiting = [output]
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in found:
            found.add(id(node))
            waiting += node.inputs
    return [node for node in nodes if id(node) in found]
