"""An ONNX file as plain values: nodes, constants, and the way to its output. Nothing of it is executed.

The file is read by protobuf alone; weights that lie in other files are refused, because a path in a stranger's file may
lead anywhere.
"""

from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.onnx.memory import find_memory
from quarl_bench.policies.sources.onnx.nodes import LIMIT, NODES, Array, Graph, Node, choose_output, find_needed
from quarl_bench.system.extras import require

OLDEST = 9  # of opsets
INTEGERS = ("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QGemm",
            "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")  # fmt: skip
RECURRENT = ("RNN", "Loop", "Scan")


def read_graph(data: bytes, where: str, output: str | None = None) -> Graph:
    """The graph in the bytes of an .onnx file, on the way to `output`, or its only one.

    Inputs and outputs that are the state of an LSTM or a GRU are left out. PolicyError for files that are damaged, too
    old, quantized already, recurrent in another way, or in more than one part.
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
        outputs = [value.name for value in graph.output]
        nodes = [node for node in nodes if node.operator != "Constant"]
        for name in {name for node in nodes for name in node.inputs if name in stored}:
            constants[name] = _read_tensor(onnx, stored[name], where)
        found, states = find_memory(Graph(where, "", "", tuple(nodes), constants), names, outputs)
        wanted = choose_output([name for name in outputs if name not in states] or outputs, output, where)
        needed = find_needed([*found], wanted)
    except PolicyError:
        raise
    except Exception as error:  # a damaged file raises almost anything
        raise PolicyError(f"{where}: damaged ({type(error).__name__}); export it again") from error
    read = [name for name in names if any(name in node.inputs for node in needed)]
    if len(read) != 1:
        raise PolicyError(
            f"{where}: {len(read)} inputs ({', '.join(read)[:80]}), and a policy reads its observation alone"
        )
    entry = next(value for value in graph.input if value.name == read[0])
    rank = _read_rank(entry, where) if states else 0
    shape = tuple(dim.dim_value for dim in entry.type.tensor_type.shape.dim)[1:]
    return Graph(where, read[0], wanted, tuple(needed), constants, rank, shape)


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
        raise PolicyError(f"{where}: {read} is recurrent in another way than an LSTM or a GRU")
    if node.domain not in ("", "ai.onnx"):
        raise PolicyError(f"{where}: {read} is of the domain {node.domain[:40]!r}; export with standard operators only")
    return read


def _read_rank(value: Any, where: str) -> int:
    """How many axes an observation has; PolicyError where it is several."""
    sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    if any(size > 1 for size in sizes[:-1]):
        raise PolicyError(f"{where}: reads observations of shape {tuple(sizes)[:4]}; export it with one at a time")
    return len(sizes) or 2


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
