"""A design's layers as a QONNX file: what FINN builds from, and what the package `qonnx` executes to the same integers.

Everything is a whole number carried by float32. Quant nodes of scale 1 state the widths of input and weights, a MatMul
sums exactly (sums stay below 2^24), and a MultiThreshold per layer requantizes by the thresholds of the design. A last
layer that returns its sums ends in an Add of its offsets.

A MultiThreshold only counts, so a table that falls is a difference: how often it has risen up to a sum, less how often
it has fallen. The layer computes both, each in neurons of its own, and the next has its weights twice, once negated.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from quarl_bench.backends.fpga.rtl.stage import Stage, signed_bits
from quarl_bench.backends.onnx.qdq import IR_VERSION, load_onnx
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.products.sums import EXACT_FLOAT32

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

    stages = write_differences(stages)
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


def write_differences(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Stages of the same outputs without a table; behind a last one that has one, a stage subtracts."""
    written: list[Stage] = []
    start: int | None = None  # of a table before: its code for a count of zero
    for given in stages:
        stage = given if start is None else _read_difference(given, start, written[-1])
        start = None if stage.table is None else int(stage.table[0])
        written.append(stage if stage.table is None else _count_both(stage, stage.table))
    if start is not None:
        identity = np.eye(stages[-1].outputs, dtype=np.int64)
        written.append(_read_difference(_return_sums(stages[-1], identity), start, written[-1]))
    return tuple(written)


def _count_both(stage: Stage, table: Integers) -> Stage:
    """Twice the neurons of `stage`: the first half counts how often its table has risen, the second its falls."""
    steps = np.diff(table)
    both = [np.repeat(stage.thresholds, np.maximum(sign * steps, 0), axis=1) for sign in (1, -1)]
    bits = max(found.shape[1] for found in both).bit_length()
    _, largest = stage.reach
    spare = [np.repeat(largest[:, None] + 1, (1 << bits) - 1 - found.shape[1], axis=1) for found in both]
    return replace(
        stage,
        weight=np.tile(stage.weight, (2, 1)),
        thresholds=np.concatenate([np.concatenate(pair, axis=1) for pair in zip(both, spare, strict=True)]),
        out_bits=bits,
        lowest=0,
        table=None,
    )


def _read_difference(stage: Stage, start: int, before: Stage) -> Stage:
    """`stage` behind `before`, whose counts stand for `start` and what they add to it."""
    weight = stage.weight.astype(np.int16)
    missing = start * weight.sum(1, dtype=np.int64)  # of what the codes would add up to
    return replace(
        stage,
        weight=np.concatenate([weight, -weight], axis=1),
        in_bits=before.out_bits,
        low=0,
        high=before.highest,
        thresholds=stage.thresholds - missing[:, None],
        offsets=None if stage.offsets is None else stage.offsets + missing,
    )


def _return_sums(stage: Stage, weight: Integers) -> Stage:
    """A stage behind `stage` that returns the sums of its codes under `weight`, as its output integers."""
    low, high = stage.lowest, stage.lowest + stage.highest
    return replace(
        stage,
        name="difference",
        weight=weight,
        in_signed=False,
        thresholds=np.empty((len(weight), 0), dtype=np.int64),
        out_bits=signed_bits(low, high),
        lowest=0,
        offsets=np.full(len(weight), stage.lowest),
        table=None,
    )
