"""A program saved by torch.export as the same plain graph that an ONNX file becomes. Nothing of it is executed.

The archive holds the graph as JSON and every tensor as its bytes; pickles that may lie beside them (sample inputs) are
not looked at. Read is the layout of torch since 2.7: `models/model.json` and `data/weights/`.
"""

import json
from collections import Counter
from typing import Any

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.archive import Archive, open_archive
from quarl_bench.policies.sources.onnx.nodes import LIMIT, NODES, Array, Graph, Node, choose_output, find_needed
from quarl_bench.policies.sources.strides import view

JSON_LIMIT = 2**24
TYPES = {5: "<i8", 6: "<f2", 7: "<f4", 8: "<f8"}  # torch's numbers of int64, float16, float32 and float64
PREFIX = "torch.ops.aten."
OPERATORS = {  # of torch, by those of ONNX that compute the same
    "linear.default": "Gemm", "conv2d.default": "Conv", "batch_norm.default": "BatchNormalization",
    "add.Tensor": "Add", "sub.Tensor": "Sub", "mul.Tensor": "Mul", "div.Tensor": "Div", "clamp.default": "Clip",
    "relu.default": "Relu", "relu_.default": "Relu", "tanh.default": "Tanh", "sigmoid.default": "Sigmoid",
    "elu.default": "Elu", "elu_.default": "Elu", "selu.default": "Selu", "silu.default": "Swish",
    "silu_.default": "Swish", "gelu.default": "Gelu", "leaky_relu.default": "LeakyRelu", "softplus.default": "Softplus",
    "hardtanh.default": "Hardtanh", "relu6.default": "Relu6", "hardswish.default": "HardSwish", "abs.default": "Abs",
    "exp.default": "Exp", "log.default": "Log", "neg.default": "Neg", "flatten.using_ints": "Flatten",
    "dropout.default": "Dropout", "alias.default": "Identity", "detach.default": "Identity",
    "contiguous.default": "Identity", "slice.Tensor": "Slice", "chunk.default": "Split",
    "split_with_sizes.default": "Split", "softmax.int": "Softmax", "argmax.default": "ArgMax",
}  # fmt: skip
VIEWS = {"Identity", "Flatten", "Slice", "Split", "Dropout"}  # may be the same numbers under another name
COMPUTING = {*OPERATORS.values()} - VIEWS
ATTRIBUTES = {  # of torch, by those of ONNX
    "alpha": "alpha", "negative_slope": "alpha", "approximate": "approximate", "min": "min", "max": "max",
    "min_val": "min", "max_val": "max", "eps": "epsilon", "stride": "strides", "padding": "pads",
    "dilation": "dilations", "groups": "group", "split_sizes": "split", "dim": "axis", "start": "starts", "end": "ends",
    "start_dim": "axis",
}  # fmt: skip
# Of no consequence: a policy is played in evaluation mode, whatever mode it was exported in.
UNREAD = {"training", "momentum", "cudnn_enabled", "p", "train", "chunks", "end_dim", "dtype", "keepdim"}
PLAIN = {"threshold": 20}  # the only values of further arguments; elsewhere they are 1
FACTORS = ("add.Tensor", "sub.Tensor")  # whose `alpha` is a factor
DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, StopIteration)
WHOLE = 2**62  # of an end, that means all


def read_program(data: bytes, where: str, output: str | None = None) -> Graph:
    """The graph in the bytes of a .pt2 file, on the way to `output`, or its only one; PolicyError where it has none."""
    archive = open_archive(data, where, LIMIT)
    try:
        program = _read_json(archive, "models/model.json")
        names = _read_json(archive, "data/weights/model_weights_config.json")["config"]
        module = program["graph_module"]
        constants: dict[str, Array] = {}
        inputs = []
        for spec in module["signature"]["input_specs"]:
            kind, entry = next(iter(spec.items()))
            if kind == "user_input":
                inputs.append(entry["arg"]["as_tensor"]["name"])
            elif kind in ("parameter", "buffer"):
                constants[entry["arg"]["name"]] = _read_tensor(archive, names[entry[f"{kind}_name"]])
        outputs = module["signature"]["output_specs"]
        if kept := [kind for spec in outputs for kind in spec if kind != "user_output"]:
            raise PolicyError(
                f"{where}: keeps a state ({kept[0][:40]}); policies with a memory are read as .onnx or .pt"
            )
        wanted = [spec["user_output"]["arg"]["as_tensor"]["name"] for spec in outputs]
        if len(module["graph"]["nodes"]) > NODES:
            raise PolicyError(f"{where}: {len(module['graph']['nodes'])} nodes; a policy has fewer")
        nodes = [_read_node(node, constants, where) for node in module["graph"]["nodes"]]
        _refuse_writes(nodes, [str(node["target"]) for node in module["graph"]["nodes"]], wanted, where)
        chosen = choose_output([str(name) for name in wanted], output, where)
    except DAMAGE as error:
        raise PolicyError(
            f"{where}: damaged, or not of torch.export since 2.7 ({type(error).__name__}); save it again, or as .onnx"
        ) from error
    if len(inputs) != 1:
        raise PolicyError(f"{where}: {len(inputs)} inputs, and a policy reads observations alone")
    return Graph(where, inputs[0], chosen, tuple(find_needed(nodes, chosen)), constants)


def _refuse_writes(nodes: list[Node], targets: list[str], wanted: list[str], where: str) -> None:
    """PolicyError for an operator that writes over what somebody else reads, or over a view, an input or a buffer."""
    readers = Counter(name for node in nodes for name in node.inputs) + Counter(wanted)
    makers = {name: node for node in nodes for name in node.outputs}
    for node, target in zip(nodes, targets, strict=True):
        if not target.rpartition(".")[0].endswith("_"):
            continue
        tensor = node.inputs[0] if node.inputs else ""
        while readers[tensor] == 1 and tensor in makers and makers[tensor].operator not in COMPUTING:
            tensor = next(iter(makers[tensor].inputs), "")
        if readers[tensor] != 1 or tensor not in makers:
            raise PolicyError(
                f"{where}: {node} writes over what it reads ({target[-40:]}); export it without, or to .onnx"
            )


def _read_json(archive: Archive, ending: str) -> Any:
    name = next(name for name in archive.sizes if name.endswith(f"/{ending}"))
    return json.loads(archive.read(name, JSON_LIMIT))


def _read_tensor(archive: Archive, entry: dict[str, Any]) -> Array:
    about = entry["tensor_meta"]
    if entry["use_pickle"] or about["storage_offset"]["as_int"] != 0:
        raise ValueError("a tensor that is not plain bytes")
    folder = next(name for name in archive.sizes if name.endswith("/data/weights/model_weights_config.json"))
    raw = archive.read(f"{folder.rpartition('/')[0]}/{entry['path_name']}", LIMIT)
    shape, strides = ([int(entry["as_int"]) for entry in about[name]] for name in ("sizes", "strides"))
    return view(np.frombuffer(raw, TYPES[about["dtype"]]), 0, shape, strides)


def _read_node(node: dict[str, Any], constants: dict[str, Array], where: str) -> Node:
    """A node under ONNX's name; numbers among its operands become constants."""
    target = str(node["target"]).removeprefix(PREFIX)
    outputs = [entry for one in node["outputs"] for entry in one.get("as_tensors", [one.get("as_tensor")]) if entry]
    names = tuple(entry["name"] for entry in outputs)
    kind = OPERATORS.get(target, target)
    inputs, attributes = [], {}
    for one in node["inputs"]:
        name, (form, value) = one["name"], next(iter(one["arg"].items()))
        if form == "as_tensor":
            inputs.append(value["name"])
        elif form == "as_none":
            continue
        elif name == "other":
            inputs.append(f"{names[0]}.other")
            constants[inputs[-1]] = np.asarray(value, dtype=np.float64)
        elif name in ATTRIBUTES and target not in FACTORS:
            attributes[ATTRIBUTES[name]] = value
        elif name not in UNREAD and value != PLAIN.get(name, 1):
            raise PolicyError(
                f"{where}: node {names[:1]} ({target[:40]}) has {name[:40]}={str(value)[:20]}; export to ONNX"
            )
    if not all(isinstance(name, str) for name in (*names, *inputs)):
        raise TypeError("names that are no text")
    return _translate(Node(kind, names[0], tuple(inputs), names, attributes))


def _translate(node: Node) -> Node:
    """What ONNX says otherwise than torch."""
    given = dict(node.attributes)
    kind = node.operator
    if kind == "Gemm":
        given = {"transB": 1}
    elif kind == "Relu6":
        kind, given = "Clip", {"min": 0.0, "max": 6.0}
    elif kind == "Hardtanh":
        kind, given = "Clip", {"min": -1.0, "max": 1.0} | given
    elif kind == "Slice":
        if given.get("axis", 0) == 0 and given.get("starts", 0) == 0 and given.get("ends", WHOLE) >= WHOLE:
            kind, given = "Identity", {}  # all of the batch
        else:
            given = {"axes": [given["axis"]], "starts": [given.get("starts", 0)], "ends": [given.get("ends", WHOLE)]}
    return Node(kind, node.name, node.inputs, node.outputs, given)
