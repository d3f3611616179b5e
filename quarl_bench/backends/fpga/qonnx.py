"""A design's layers as a QONNX file: what FINN builds from, and what the package `qonnx` executes to the same integers.

Everything is a whole number carried by float32. Quant nodes of scale 1 state the widths of input and weights, a MatMul
sums exactly (sums stay below 2^24), and a MultiThreshold per layer requantizes by the thresholds of the design. A last
layer that returns its sums ends in an Add of its offsets.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from quarl_bench.backends.fpga.rtl.stage import Stage
from quarl_bench.backends.onnx.qdq import IR_VERSION, load_onnx
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.carried import EXACT_FLOAT32

DOMAIN = "qonnx.custom_op.general"
OPSET = 13  # what qonnx 1.0 executes
INPUT, OUTPUT = "input", "output"


def write_qonnx(stages: Sequence[Stage], *, rows: int = 1) -> bytes:
    """The file for batches of `rows` input integers; DeploymentError for sums that float32 does not hold."""
    onnx = load_onnx()
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes: list[Any] = []
    constants: list[Any] = []
    shapes: list[Any] = []

    def add_constant(name: str, values: Any) -> str:
        constants.append(onnx.numpy_helper.from_array(np.asarray(values, dtype=np.float32), name))
        return name

    def add(operator: str, inputs: list[str], output: str, shape: tuple[int, ...], **attributes: Any) -> str:
        domain = "" if operator in ("MatMul", "Add") else DOMAIN
        nodes.append(helper.make_node(operator, inputs, [output], name=output, domain=domain, **attributes))
        shapes.append(helper.make_tensor_value_info(output, floats, shape))
        return output

    def add_quant(source: str, bits: int, shape: tuple[int, ...], *, signed: bool) -> str:
        numbers = {"scale": 1.0, "zero_point": 0.0, "bits": bits}
        inputs = [source, *(add_constant(f"{source}.{name}", value) for name, value in numbers.items())]
        form = {"signed": int(signed), "narrow": 0, "rounding_mode": "ROUND"}
        return add("Quant", inputs, f"{source}.quant", shape, **form)

    first, last = stages[0], stages[-1]
    x = add_quant(INPUT, first.in_bits, (rows, first.inputs), signed=first.in_signed)
    for stage in stages:
        offsets = 0 if stage.offsets is None else stage.offsets
        smallest, largest = (np.stack([sums, sums + offsets]) for sums in stage.reach)
        if max(int(-smallest.min()), int(largest.max()) + 1, int(np.abs(offsets).max())) >= EXACT_FLOAT32:
            raise DeploymentError(
                f"qonnx: sums of {stage.name} go beyond 2^24, which float32 does not hold; use fewer bits"
            )
        weight = add_constant(f"{stage.name}.weight", stage.weight.T)
        weight = add_quant(weight, stage.weight_bits, (stage.inputs, stage.outputs), signed=True)
        x = add("MatMul", [x, weight], f"{stage.name}.sum", (rows, stage.outputs))
        if stage.wide:
            x = add("Add", [x, add_constant(f"{stage.name}.offsets", offsets)], OUTPUT, (rows, stage.outputs))
            continue
        thresholds = add_constant(f"{stage.name}.thresholds", stage.thresholds)
        bias = stage.lowest if stage is last else 0  # counts travel between layers
        kind = f"{'INT' if bias < 0 else 'UINT'}{stage.out_bits}"
        name = OUTPUT if stage is last else f"{stage.name}.count"
        shape = (rows, stage.outputs)
        x = add("MultiThreshold", [x, thresholds], name, shape, out_dtype=kind, out_bias=float(bias))
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info(INPUT, floats, (rows, first.inputs))],
        [shapes.pop()],
        constants,
        value_info=shapes,
    )
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="quarl_bench")
    return bytes(model.SerializeToString())
