"""An integer policy on disk: `integers.safetensors` for the numbers, `manifest.json` for formats and both ends.

The canonical form of what every backend exports: int8 weights, int32 biases, float32 scales. On disk, weights of fewer
than 8 bits are packed; files from before they were are read too. Folders appear whole or not at all; the manifest names
the file's sha256.
"""

import hashlib
import json
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from quarl_bench.errors import PolicyError
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.policies.storage.fp32 import (
    INTEGERS,
    Tensors,
    build_branches,
    build_head,
    build_transform,
    describe_branches,
    describe_head,
    describe_observation,
    end_tensors,
    list_metadata,
    read_policy,
    write_policy,
)
from quarl_bench.policies.storage.packing import pack_integers, unpack_integers
from quarl_bench.quantization.activations import Activation, is_tabled
from quarl_bench.quantization.affine import SMALLEST_SCALE, IntegerFormat
from quarl_bench.quantization.branches import find_stem, list_places
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.parameters import SUM_BITS, ActivationFormat, PartedFormat, QuantizedLayer
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from quarl_bench.quantization.recurrent.quantized import STATE_FORMAT, Lookup, QuantizedCell
from quarl_bench.quantization.recurrent.ranges import TABLE_BITS
from quarl_bench.quantization.requantize import Requantization

FORM = "integer"
BIT_WIDTHS = range(2, 9)
WIDE = (STATE_FORMAT.bit_width,)
LARGEST_SCALE = float(np.finfo(np.float32).max)
KINDS: dict[str, type[Linear] | type[Conv2d]] = {"linear": Linear, "conv2d": Conv2d}


@dataclass(frozen=True, eq=False)
class StoredIntegers:
    """An integer policy, the content hash that names it, and what its manifest says about its origin."""

    policy: IntegerPolicy
    sha256: str
    metadata: dict[str, Any] = field(default_factory=dict)


def save_integers(policy: IntegerPolicy, folder: Path, metadata: dict[str, Any]) -> StoredIntegers:
    """Write `policy` to `folder`, replacing a policy there; `metadata` joins the manifest."""
    described = {"form": FORM, "architecture": describe_integers(policy)}
    write_policy(folder, INTEGERS, _pack_weights(policy), described | metadata)
    return StoredIntegers(policy, hash_integers(policy), metadata)


def _pack_weights(policy: IntegerPolicy) -> Tensors:
    """`integer_tensors` as they stand in a file."""
    tensors = integer_tensors(policy)
    for index, layer in enumerate(policy.net.layers):
        if layer.weight_format.bit_width < max(BIT_WIDTHS):
            tensors[f"layers.{index}.weight"] = pack_integers(layer.weight, layer.weight_format)
    return tensors


def integer_tensors(policy: IntegerPolicy) -> Tensors:
    """The numbers of an integer policy, by name: int8 weights, int32 biases, float32 scales, and both ends."""
    tensors = end_tensors(policy.transform, policy.head)
    for index, layer in enumerate(policy.net.layers):
        names = {"weight": layer.weight, "bias": layer.bias, "weight_scale": layer.weight_scale}
        tensors |= {f"layers.{index}.{name}": np.ascontiguousarray(array) for name, array in names.items()}
    return tensors


def describe_integers(policy: IntegerPolicy) -> dict[str, Any]:
    """What `build_integers` needs beside `integer_tensors`; JSON types."""
    return (
        {
            "observation": describe_observation(policy.transform),
            "input": _describe_format(policy.net.input) | describe_parts(policy.net.input),
            "layers": [_describe_layer(layer) for layer in policy.net.layers],
            "head": describe_head(policy.head),
            "requantization": str(policy.net.requantization),
        }
        | _describe_cells(policy.net.cells)
        | describe_branches(policy.net.branches)
    )


def load_integers(folder: Path) -> StoredIntegers:
    """Read a folder of `save_integers`; PolicyError, naming the file and the remedy, for anything else."""
    policy, manifest = read_policy(folder, INTEGERS, _build_checked)
    return StoredIntegers(policy, hash_integers(policy), list_metadata(manifest))


def _build_checked(architecture: dict[str, Any], tensors: Tensors) -> IntegerPolicy:
    policy = build_integers(architecture, tensors)
    check_integers(policy.net)
    return policy


def build_integers(architecture: dict[str, Any], tensors: Tensors) -> IntegerPolicy:
    """Inverse of `describe_integers`; KeyError, TypeError, ValueError or PolicyError when ill-formed."""
    transform = build_transform(architecture["observation"], tensors)
    layers = tuple(_build_layer(index, entry, tensors) for index, entry in enumerate(architecture["layers"]))
    requantization = Requantization(architecture["requantization"])
    cells = tuple(_build_cell(entry) for entry in architecture.get("cells", ()))
    source = build_parts(architecture["input"], _build_format(architecture["input"]))
    branches = build_branches(architecture)
    net = IntegerNet(transform.input_shape, source, layers, requantization, cells, branches)
    return IntegerPolicy(transform, net, build_head(architecture["head"], tensors))


def check_integers(net: IntegerNet) -> None:
    """Refuse, with PolicyError, what a file may say but no quantizer writes: it would fail later, or act silently."""
    _check_parts(net)
    floats = []
    for index, (layer, source) in enumerate(zip(net.layers, net.sources, strict=False)):
        weight, scale, integers = layer.weight, layer.weight_scale, layer.weight_format
        if scale.shape not in ((1,), (len(weight),)) or not ((scale > 0) & np.isfinite(scale)).all():
            raise PolicyError(
                f"layer {index}: weight scales are positive and finite, one for all outputs or one for each"
            )
        if weight.size and not integers.minimum <= weight.min() <= weight.max() <= integers.maximum:
            raise PolicyError(f"layer {index}: weights of {integers.bit_width} bits outside their range")
        if layer.output.wide:
            _check_wide(layer, source, index, last=index == len(net.layers) - 1)
        if (layer.tabled is None) == is_tabled(layer.activation):
            raise PolicyError(f"layer {index}: a second format belongs behind a table, and behind nothing else")
        floats.append(layer.dequantized(source.scale))
    for cell in net.cells:
        _check_cell(cell, net)
    cells = tuple(Cell(cell.kind, cell.place) for cell in net.cells)
    # What the integers stand for: shapes that fit, finite numbers.
    Net(net.input_shape, tuple(floats), cells, net.branches)


def _check_parts(net: IntegerNet) -> None:
    """The parts of an input as its branches take it apart: all of the same integers, and joined in one format."""
    parted = net.input if isinstance(net.input, PartedFormat) else None
    if (parted is None) != (not net.branches):
        raise PolicyError("an input has parts where branches take it apart, and nowhere else")
    if parted is None:
        return
    places = [*list_places(net.branches)]
    if parted.widths != tuple(branch.width for branch in net.branches) or find_stem(net.branches) >= len(net.layers):
        raise PolicyError(f"an input of parts {parted.widths[:8]} for other branches")
    for place, part in zip(places, parted.parts, strict=True):
        end = net.layers[place.layers[-1]] if place.layers else None
        last = part if end is None else end.result
        if part.format != parted.format or last != parted.joined or (end is not None and end.tabled is not None):
            raise PolicyError("every branch ends in the format of the input, whose integers its part has too")


def _check_cell(cell: QuantizedCell, net: IntegerNet) -> None:
    where = f"{cell.kind} at layer {cell.place}"
    lookups = [cell.sigmoid, cell.candidate, *([cell.squash] if cell.squash else [])]
    wide = [cell.sums, cell.cell, *(lookup.behind for lookup in lookups)]
    if any(one.format != STATE_FORMAT or one.zero_point for one in wide):
        raise PolicyError(f"{where}: sums, tables and state have {STATE_FORMAT.bit_width} bits, and the zero point 0")
    if [layer.output for layer in net.layers[cell.place : cell.place + 2]] != [cell.sums, cell.sums]:
        raise PolicyError(f"{where}: its two layers end in other sums than the cell's")
    if (cell.squash is None) == (cell.kind is CellKind.LSTM) or not cell.hidden.format.signed:
        raise PolicyError(f"{where}: an LSTM, and no other cell, has a tanh of its state; hidden states are signed")
    if any(lookup.activation not in (Activation.SIGMOID, Activation.TANH) for lookup in lookups):
        raise PolicyError(f"{where}: its tables are of sigmoid and tanh")


def _check_wide(layer: QuantizedLayer, source: ActivationFormat, index: int, *, last: bool) -> None:
    product = source.scale * layer.weight_scale
    same = len(product) == 1 and product[0] == layer.output.scale and layer.output.zero_point == 0
    plain = layer.kind is Linear and layer.activation is Activation.NONE and layer.output.format.signed
    if not (last and same and plain):
        raise PolicyError(f"layer {index}: sums of {SUM_BITS} bits are the last layer's, of the scale input * weight")


def hash_integers(policy: IntegerPolicy) -> str:
    """The content hash of an integer policy: of everything that decides its actions, numbers and architecture."""
    numbers = hashlib.sha256(save(integer_tensors(policy))).hexdigest()
    return hashlib.sha256(json.dumps([numbers, describe_integers(policy)], sort_keys=True).encode()).hexdigest()


def _describe_layer(layer: QuantizedLayer) -> dict[str, Any]:
    return {
        "kind": next(name for name, kind in KINDS.items() if kind is layer.kind),
        "shape": list(layer.weight.shape),
        "activation": str(layer.activation),
        "stride": layer.stride,
        "weight": _describe_integers(layer.weight_format),
        "output": _describe_format(layer.output),
        "tanh": None if layer.tabled is None else _describe_format(layer.tabled),  # the oldest table's name
    }


def _build_layer(index: int, entry: dict[str, Any], tensors: Tensors) -> QuantizedLayer:
    weight, bias = tensors[f"layers.{index}.weight"], tensors[f"layers.{index}.bias"]
    scale, integers = tensors[f"layers.{index}.weight_scale"], _build_integers(entry["weight"])
    if weight.dtype == np.uint8:
        weight = unpack_integers(weight, entry["shape"], integers)
    types = [str(array.dtype) for array in (weight, bias, scale)]
    if types != ["int8", "int32", "float32"] or list(weight.shape) != entry["shape"] or len(bias) != len(weight):
        raise ValueError(f"layer {index}: its tensors are not those of the manifest")
    return QuantizedLayer(
        kind=KINDS[entry["kind"]],
        activation=Activation(entry["activation"]),
        stride=int(entry["stride"]),
        weight=weight,
        weight_scale=scale,
        weight_format=integers,
        bias=bias,
        output=_build_format(entry["output"], (*BIT_WIDTHS, STATE_FORMAT.bit_width, SUM_BITS)),
        tabled=None if entry["tanh"] is None else _build_format(entry["tanh"]),
    )


def _describe_cells(cells: Sequence[QuantizedCell]) -> dict[str, Any]:
    """Nothing of a net that has none."""
    return {"cells": [_describe_cell(cell) for cell in cells]} if cells else {}


def _describe_cell(cell: QuantizedCell) -> dict[str, Any]:
    lookups = {"sigmoid": cell.sigmoid, "candidate": cell.candidate, "squash": cell.squash}
    formats = {"sums": cell.sums, "cell": cell.cell, "hidden": cell.hidden}
    return (
        {"kind": str(cell.kind), "place": cell.place}
        | {name: None if lookup is None else _describe_lookup(lookup) for name, lookup in lookups.items()}
        | {name: _describe_format(one) for name, one in formats.items()}
    )


def _describe_lookup(lookup: Lookup) -> dict[str, Any]:
    ends = {"front": _describe_format(lookup.front), "behind": _describe_format(lookup.behind)}
    return {"activation": str(lookup.activation)} | ends


def _build_cell(entry: dict[str, Any]) -> QuantizedCell:
    return QuantizedCell(
        kind=CellKind(entry["kind"]),
        place=int(entry["place"]),
        sums=_build_format(entry["sums"], WIDE),
        sigmoid=_build_lookup(entry["sigmoid"]),
        candidate=_build_lookup(entry["candidate"]),
        squash=None if entry["squash"] is None else _build_lookup(entry["squash"]),
        cell=_build_format(entry["cell"], WIDE),
        hidden=_build_format(entry["hidden"]),
    )


def _build_lookup(entry: dict[str, Any]) -> Lookup:
    front = _build_format(entry["front"], range(2, TABLE_BITS + 1))
    return Lookup(Activation(entry["activation"]), front, _build_format(entry["behind"], WIDE))


def _describe_integers(format: IntegerFormat) -> dict[str, Any]:
    return {"bit_width": format.bit_width, "signed": format.signed, "narrow_range": format.narrow_range}


def _build_integers(entry: dict[str, Any], widths: Container[int] = BIT_WIDTHS) -> IntegerFormat:
    bit_width = int(entry["bit_width"])
    if bit_width not in widths:
        raise ValueError(f"integers of {bit_width} bits")
    return IntegerFormat(bit_width, bool(entry["signed"]), bool(entry["narrow_range"]))


def _describe_format(activation: ActivationFormat) -> dict[str, Any]:
    # Every float32 is a float64, so JSON keeps the scale exactly.
    place = {"scale": float(activation.scale), "zero_point": activation.zero_point}
    return _describe_integers(activation.format) | place


def describe_parts(format: ActivationFormat) -> dict[str, Any]:
    """What `build_parts` needs; nothing of a format without parts."""
    if not isinstance(format, PartedFormat):
        return {}
    pairs = zip(format.parts, format.widths, strict=True)
    return {"parts": [{"width": width, **_describe_format(part)} for part, width in pairs]}


def build_parts(entry: dict[str, Any], format: ActivationFormat) -> ActivationFormat:
    """`format` with the parts that `describe_parts` said; KeyError, TypeError or ValueError when ill-formed."""
    if "parts" not in entry:
        return format
    parts = tuple(_build_format(part) for part in entry["parts"])
    widths = tuple(int(part["width"]) for part in entry["parts"])
    return PartedFormat(format.format, format.scale, format.zero_point, parts, widths)


def _build_format(entry: dict[str, Any], widths: Container[int] = BIT_WIDTHS) -> ActivationFormat:
    integers, scale, zero_point = _build_integers(entry, widths), float(entry["scale"]), int(entry["zero_point"])
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE or not integers.minimum <= zero_point <= integers.maximum:
        raise ValueError(f"a scale of {scale} or a zero point of {zero_point}")
    return ActivationFormat(integers, np.float32(scale), zero_point)
