"""Recurrent cells as C99: constants, one function per cell, and what carries a state from call to call."""

import numpy as np

from quarl_bench.backends.c.arrays import Arrays
from quarl_bench.backends.c.layers import LARGEST_SHIFT, SMALLEST_SHIFT, write_format, write_integer_layer, write_offset
from quarl_bench.backends.state import CELL, HIDDEN
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.recurrent.cells import PARTS, Cell, find_width
from quarl_bench.quantization.recurrent.quantized import Lookup, QuantizedCell
from quarl_bench.quantization.requantize import Float32s, effective_scale, split_scale

HEAD = "static void {name}(const {type} *x, const {bytes} *before, {bytes} *behind, {type} *y)\n{{\n"


def write_integer_cell(arrays: Arrays, net: IntegerNet, cell: QuantizedCell, name: str) -> str:
    """Constants and function of a cell of `net`, its two layers among them."""
    width, place = find_width(net.layers, cell), cell.place
    parts, narrowed = [], []
    sources = (net.sources[place], cell.hidden)
    for index, source, sums in zip((place, place + 1), sources, ("sums_x", "sums_h"), strict=True):
        layer = net.layers[index]
        shape = (layer.weight.shape[1],)
        parts.append(write_integer_layer(arrays, index, layer, source, shape, thresholds=False, summed=True))
        scale = effective_scale(np.asarray(source.scale), layer.weight_scale, np.asarray(cell.sums.scale))
        parts.append(_declare_scales(f"layer_{index}_scales", scale))
        channels = int(len(scale) > 1)
        narrowed.append(f"    quarl_narrow_sums({sums}, {len(layer.bias)}, layer_{index}_scales, {channels});")
    parts.append(_declare_cell(arrays, cell, name))
    count = len(net.layers[place].bias)
    body = [
        f"    static int32_t sums_x[{count}], sums_h[{count}];",
        f"    static quarl_byte hidden[{width}] QUARL_ALIGN;",
        f"    quarl_read_hidden(before, hidden, {width}, {write_offset(cell.hidden)});",
        f"    layer_{place}(x, sums_x);",
        f"    layer_{place + 1}(hidden, sums_h);",
        *narrowed,
        f"    quarl_{cell.kind}(&{name}_constants, sums_x, sums_h, before, behind, y, {width});",
    ]
    head = HEAD.format(name=name, type="quarl_byte", bytes="unsigned char")
    return "\n".join([*parts, head + "\n".join(body) + "\n}"])


def write_float_cell(net: Net, cell: Cell, name: str) -> str:
    """Function of a cell of `net`, whose two layers stand before it."""
    width, count = find_width(net.layers, cell), len(net.layers[cell.place].bias)
    body = [
        f"    static float sums_x[{count}], sums_h[{count}];",
        f"    layer_{cell.place}(x, sums_x);",
        f"    layer_{cell.place + 1}(before, sums_h);",
        f"    quarl_{cell.kind}(sums_x, sums_h, before, behind, y, {width});",
    ]
    return HEAD.format(name=name, type="float", bytes="float") + "\n".join(body) + "\n}"


def count_part(net: Net | IntegerNet, cell: Cell) -> int:
    """Of a state, how many numbers of the port's type belong to one cell."""
    each = HIDDEN.itemsize + CELL.itemsize if isinstance(net, IntegerNet) else PARTS[cell.kind]
    return find_width(net.layers, cell) * each


def _declare_cell(arrays: Arrays, cell: QuantizedCell, name: str) -> str:
    reads = {"sigmoid": "gates", "candidate": "news", "squash": "squashed"}
    scales = {part: effective_scale(*map(np.atleast_1d, scale)) for part, scale in cell.scales.items()}
    declared, tables = [], []
    for part, lookup in cell.tables.items():
        declared.append(arrays.declare(f"{name}_{part}", lookup.table.astype(np.int16)))
        tables.append(f"    .{part} = {_write_table(lookup, f'{name}_{part}', scales[reads[part]])},")
    own = [part for part in scales if part not in reads.values()]
    fields = [f"    .{part} = {_write_scale(scales[part])[0]}," for part in own]
    hidden = write_format(cell.hidden, cell.hidden.format.minimum)
    inner = hidden.removeprefix("QUARL_FORMAT(").removesuffix(")")  # a constant's own initializer takes no literal
    fields += [f"    .whole = {cell.whole},", f"    .hidden = {{{inner}}},"]
    constants = "\n".join([*tables, *fields])
    return "\n".join([*declared, f"static const quarl_cell {name}_constants = {{\n{constants}\n}};"])


def _write_table(lookup: Lookup, entries: str, scale: Float32s) -> str:
    front = lookup.front
    ends = f"{front.zero_point}, {front.format.minimum}, {front.format.maximum}"
    return f"{{{entries}, {ends}, {_write_scale(scale)[0]}}}"


def _declare_scales(name: str, scale: Float32s) -> str:
    numbers = ",\n    ".join(_write_scale(scale))
    return f"static const quarl_scale {name}[{len(scale)}] = {{\n    {numbers}\n}};"


def _write_scale(scale: Float32s) -> list[str]:
    multiplier, shift = split_scale(scale)
    shift = np.clip(shift, SMALLEST_SHIFT, LARGEST_SHIFT)
    triples = zip(multiplier.tolist(), shift.tolist(), scale.tolist(), strict=True)
    return [f"QUARL_SCALE({whole}u, {right}, {float(number).hex()}f)" for whole, right, number in triples]
