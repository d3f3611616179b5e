"""The layers of a policy as C99: constants, and one function per layer, which calls the kernels of c99/."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.c.arrays import Arrays
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Layer
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.requantize import effective_scale, find_thresholds, split_scale

SMALLEST_SHIFT, LARGEST_SHIFT = -64, 62  # beyond them every product is 0, or clipped
NARROW = 48  # inputs of a fully connected layer, below which dot products are shorter than what surrounds them
PACK = 16  # outputs of a float layer whose weights lie side by side: QUARL_PACK
INT32 = np.iinfo(np.int32)
FUNCTIONS = {activation: f"quarl_{activation}" for activation in Activation} | {
    Activation.NONE: "quarl_identity",
    Activation.TANH: "tanhf",
}


def _arrange(weight: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A layer's weight for channel-last activations of channel-first `shape`."""
    if weight.ndim == 4:
        return weight.transpose(0, 2, 3, 1)
    if len(shape) == 3:
        return weight.reshape(-1, *shape).transpose(0, 2, 3, 1).reshape(weight.shape)
    return weight


def write_integer_layer(
    arrays: Arrays,
    index: int,
    layer: QuantizedLayer,
    source: ActivationFormat,
    shape: tuple[int, ...],
    *,
    thresholds: bool,
    summed: bool = False,
) -> str:
    """Constants and function of an integer layer that reads `source` and an input of channel-first `shape`.

    Of one that is `summed` the function gives sums of 32 bits, as of a wide one.
    DeploymentError for sums that would leave 32 bits.
    """
    name, weight = f"layer_{index}", _arrange(layer.weight, shape)
    rows = weight.astype(np.int64).reshape(len(weight), -1)
    bias = layer.bias.astype(np.int64)
    lowest, highest = source.format.minimum, source.format.maximum
    folded = {}  # stored = integer + offset, so that bias - (zero_point + offset) * sum(weight) is left
    for kind, offset in (("U8", -lowest), ("S8", -128 if highest > 127 else 0)):
        folded[kind] = bias - (source.zero_point + offset) * rows.sum(1)
        largest = np.abs(rows).sum(1) * max(lowest + offset, highest + offset, -(lowest + offset)) + abs(folded[kind])
        if largest.max() > INT32.max:
            raise DeploymentError(f"c: layer {index} sums up to {largest.max()}, beyond 32 bits; use fewer bits")
    narrow = weight.ndim == 2 and rows.shape[1] < NARROW <= len(rows)
    declarations = [
        arrays.declare(f"{name}_weight", weight.T if narrow else weight),
        "#ifdef QUARL_U8",
        arrays.declare(f"{name}_bias_u8", folded["U8"].astype(np.int32)),  # a large one is there in either case
        f"#define {name}_bias {name}_bias_u8",
        "#else",
        arrays.declare(f"{name}_bias_s8", folded["S8"].astype(np.int32)),
        f"#define {name}_bias {name}_bias_s8",
        "#endif",
    ]
    if layer.output.wide or summed:
        kind = "narrow" if narrow else "linear"
        sums = f"quarl_sum_{kind}(x, {name}_weight, {name}_bias, y, {rows.shape[1]}, {len(rows)});"
        head = f"static void {name}(const quarl_byte *restrict x, int32_t *restrict y)"
        return "\n".join(declarations) + f"\n{head}\n{{\n    {sums}\n}}"
    declarations += _declare_requantization(arrays, name, layer, source, thresholds=thresholds)
    per_channel = int(len(layer.weight_scale) > 1)
    target = write_format(layer.output, layer.lowest)
    low, count = layer.output.format.minimum, len(bias)
    if thresholds:
        levels = layer.output.format.levels - 1
        sizes = f"{count}, {name}_below, {levels}, {per_channel}"
        finish = f"quarl_apply_thresholds(accumulator, {{y}}, {sizes}, {low}, {target});"
    else:
        finish = f"QUARL_REQUANTIZE(accumulator, {{y}}, {count}, {name}, {per_channel}, {target});"
    if layer.tabled is not None:
        declarations.append(arrays.declare(f"{name}_table", layer.table.astype(np.int16)))
        moved = f"{write_offset(layer.output)}, {write_offset(layer.tabled)}"
        finish += f"\n    quarl_look_up({{y}}, {count}, {name}_table, {low}, {moved});"
    sums = f"quarl_sum_{{kind}}({{x}}, {name}_weight, {name}_bias, accumulator, {{sizes}});\n    " + finish
    head = f"static void {name}(const quarl_byte *restrict x, quarl_byte *restrict y)\n{{\n"
    scratch = f"    static int32_t accumulator[{count}] QUARL_ALIGN;\n"
    if weight.ndim == 4:
        scratch += f"    static quarl_byte patch[{rows.shape[1]}] QUARL_ALIGN;\n"
    loops = _write_loops(sums, weight.shape, shape, layer.stride if weight.ndim == 4 else None, narrow=narrow)
    return "\n".join(declarations) + "\n" + head + scratch + loops + "}"


def _declare_requantization(
    arrays: Arrays, name: str, layer: QuantizedLayer, source: ActivationFormat, *, thresholds: bool
) -> list[str]:
    output = layer.output
    scales = (np.asarray(source.scale), layer.weight_scale, np.asarray(output.scale))
    if thresholds:
        levels = find_thresholds(*scales, output.zero_point, output.format.minimum, output.format.maximum)
        # The last accumulator below a level, because the first above the highest has no 32 bits.
        return [arrays.declare(f"{name}_below", np.clip(levels - 1, INT32.min, INT32.max).astype(np.int32))]
    scale = effective_scale(*scales)
    multiplier, shift = split_scale(scale)
    return [
        "#ifdef QUARL_FLOAT",
        arrays.declare(f"{name}_scale", scale),
        "#else",
        arrays.declare(f"{name}_multiplier", multiplier.astype(np.int32)),
        arrays.declare(f"{name}_shift", np.clip(shift, SMALLEST_SHIFT, LARGEST_SHIFT).astype(np.int8)),
        "#endif",
    ]


def _write_loops(
    call: str, weight: tuple[int, ...], shape: tuple[int, ...], stride: int | None, *, narrow: bool = False
) -> str:
    """`call` once for a fully connected layer, or for every pixel; it names {kind}, {x}, {y} and {sizes}."""
    if stride is None:
        kind = "narrow" if narrow else "linear"
        return "    " + call.format(kind=kind, x="x", y="y", sizes=f"{weight[1]}, {weight[0]}") + "\n"
    outputs, height, width, channels = weight
    rows, columns = _count_pixels(weight, shape, stride)
    pitch = shape[2] * channels
    sizes = f"patch, {pitch}, {height}, {width * channels}, {outputs}"
    inner = call.format(kind="conv2d", x="corner", y="pixel", sizes=sizes).replace("\n    ", "\n            ")
    return (
        f"    for (int row = 0; row < {rows}; row++)\n"
        f"        for (int column = 0; column < {columns}; column++) {{\n"
        f"            const quarl_byte *corner = x + {stride * pitch}L * row + {stride * channels} * column;\n"
        f"            quarl_byte *pixel = y + ({columns}L * row + column) * {outputs};\n"
        f"            {inner}\n        }}\n"
    )


def _count_pixels(weight: tuple[int, ...], shape: tuple[int, ...], stride: int) -> tuple[int, int]:
    """Rows and columns of what a convolution of a channel-last weight makes of an image."""
    rows, columns = ((side - kernel) // stride + 1 for side, kernel in zip(shape[1:], weight[1:3], strict=True))
    return rows, columns


def write_float_layer(arrays: Arrays, index: int, layer: Layer, shape: tuple[int, ...]) -> str:
    """Constants and function of a float32 layer for an input of channel-first `shape`."""
    name, weight = f"layer_{index}", _arrange(layer.weight, shape)
    flat = weight.reshape(len(weight), -1)
    declarations = [arrays.declare(f"{name}_weight", _pack(flat)), arrays.declare(f"{name}_bias", layer.bias)]
    call = f"(x, y, {name}_weight, {name}_bias, "
    if isinstance(layer, Conv2d):
        outputs, height, width, channels = weight.shape
        rows, columns = _count_pixels(weight.shape, shape, layer.stride)
        pitch, span = shape[2] * channels, width * channels
        sizes = f"{layer.stride * pitch}, {layer.stride * channels}, {pitch}, {height}, {span}, {outputs}"
        lines = [
            f"    static float patch[QUARL_TILE * {flat.shape[1]}] QUARL_ALIGN;",
            f"    quarl_conv2d{call}patch, {rows}, {columns}, {sizes});",
        ]
    else:
        lines = [f"    quarl_linear{call}{flat.shape[1]}, {len(flat)});"]
    if layer.activation is not Activation.NONE:
        size, function = math.prod(layer.output_shape(shape)), FUNCTIONS[layer.activation]
        lines += [f"    for (int i = 0; i < {size}; i++)", f"        y[i] = {function}(y[i]);"]
    head = f"static void {name}(const float *restrict x, float *restrict y)"
    return "\n".join([*declarations, head, "{", *lines, "}"])


def _pack(weight: NDArray[Any]) -> NDArray[Any]:
    """A weight (outputs, inputs) in the order of kernels_float.h: packs of outputs, input by input."""
    whole = len(weight) // PACK * PACK
    packs = weight[:whole].reshape(-1, PACK, weight.shape[1]).transpose(0, 2, 1)
    return np.concatenate([packs.ravel(), weight[whole:].T.ravel()])


def write_offset(format: ActivationFormat) -> str:
    """What is added to an integer of `format` where it is stored."""
    return f"QUARL_OFFSET({format.format.minimum}, {format.format.maximum})"


def write_format(format: ActivationFormat, lowest: int) -> str:
    """How C says where integers of `format` lie and how they are stored; `lowest` is a ReLU's own."""
    return f"QUARL_FORMAT({format.zero_point}, {lowest}, {format.format.maximum}, {write_offset(format)})"
