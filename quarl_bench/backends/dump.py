"""The canonical dump of an integer policy: every number by name, from which any other integer artefact can be made.

    model.npz     the arrays, for NumPy
    model.bin     the same arrays, one after the other: little-endian, C order, without padding
    model.json    formats, layout, rounding, and where in model.bin each array lies

`layers.<i>.weight`, `.bias` and `.weight_scale` and both ends of the policy define it; what a target without floats
needs is derived from them and stands beside them: `.multiplier` and `.shift` (scale = multiplier * 2^-shift exactly),
`.thresholds` where the policy requantizes by them, and `.table` of an activation that is no ReLU. A layer whose output
has 32 bits returns its accumulators, and has none of these. A recurrent cell has tables and scales of its own,
`cells.<i>.*`: docs/quantizer.md says what they are of.
"""

import hashlib
import io
import json
import zipfile
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import Backend, Files, check_input, find_ports, to_channel_first, to_channel_last
from quarl_bench.backends.state import count_state, pack_state, unpack_state
from quarl_bench.errors import DeploymentError, PolicyError, QuantizationError
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.storage.integers import build_integers, check_integers, describe_integers, integer_tensors
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.requantize import Requantization, effective_scale, find_thresholds, split_scale

SCHEMA_VERSION = 1
ARRAYS, RAW, DESCRIPTION = "model.npz", "model.bin", "model.json"
KERNEL = "numpy"
LAYOUT = {
    "linear": "weight (outputs, inputs); the inputs behind an image are flattened channel-first",
    "conv2d": "weight (outputs, inputs, height, width), no padding, no dilation",
    "raw": "little-endian, C order, without padding",
}
BRANCHES = (
    "the input is their shapes behind one another, each in its part's scale and zero_point; a branch passes so many of "
    "the next layers, and what all give, flat and side by side, is read by the layer behind them"
)
ROUNDING = {
    Requantization.FP32_RNE: "rint(float32(accumulator) * scale), ties to even, scale = input * weight / output in "
    "float32 from left to right; in integers: the accumulator to 24 bits, times multiplier, to 24 bits, shifted right, "
    "each to nearest even",
    Requantization.THRESHOLDS: "lowest integer + number of thresholds that the accumulator reaches; equals fp32_rne",
    Requantization.HALF_AWAY: "accumulator * (input * weight / output in float64), ties away from zero",
    Requantization.DOUBLE_HALF_UP: "31-bit multiplier, then a right shift, both half up",
    Requantization.GEMMLOWP: "saturating rounding doubling high multiplication, then a right shift, ties away",
}


def write_dump(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """The files of the dump; DeploymentError for a float policy, which has no integers to dump."""
    if not isinstance(policy, IntegerPolicy):
        raise DeploymentError("dump: it holds integers, and this policy computes in float32; use an int<bits> scheme")
    arrays = {name: np.ascontiguousarray(a, a.dtype.newbyteorder("<")) for name, a in list_arrays(policy).items()}
    raw = b"".join(array.tobytes() for array in arrays.values())
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    offsets = accumulate((array.nbytes for array in arrays.values()), initial=0)
    description = {
        "schema_version": SCHEMA_VERSION,
        "architecture": describe_integers(policy),
        "layout": LAYOUT | ({"branches": BRANCHES} if policy.net.branches else {}),
        "rounding": ROUNDING[policy.net.requantization],
        "input": "clip(rint(x * (1 / scale)) + zero_point) in float32, ties to even, of the transformed observation",
        "arrays": {
            name: {"dtype": str(array.dtype), "shape": list(array.shape), "offset": offset}
            for (name, array), offset in zip(arrays.items(), offsets, strict=False)
        },
        "sha256": {ARRAYS: hashlib.sha256(packed.getvalue()).hexdigest(), RAW: hashlib.sha256(raw).hexdigest()},
    }
    text = json.dumps(description, indent=2, allow_nan=False) + "\n"
    return {ARRAYS: packed.getvalue(), RAW: raw, DESCRIPTION: text.encode()}


def read_dump(files: Files) -> IntegerPolicy:
    """The policy of a dump, from model.json and either of the other two files.

    DeploymentError when they are ill-formed or do not belong together.
    """
    try:
        description = json.loads(files[DESCRIPTION])
        if description["schema_version"] != SCHEMA_VERSION:
            raise DeploymentError(f"dump: schema_version is not {SCHEMA_VERSION}; use a matching version")
        name = next((name for name in (ARRAYS, RAW) if name in files), ARRAYS)
        if hashlib.sha256(files[name]).hexdigest() != description["sha256"][name]:
            raise DeploymentError(f"dump: the sha256 of {name} is not that of {DESCRIPTION}; export again")
        arrays = _read_npz(files[ARRAYS]) if name == ARRAYS else _read_raw(files[RAW], description["arrays"])
        policy = build_integers(description["architecture"], arrays)
        check_integers(policy.net)
        _check_derived(policy, arrays)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError, OSError) as error:
        raise DeploymentError(f"dump: ill-formed ({error!r}); export again") from error
    except (zipfile.BadZipFile, PolicyError, QuantizationError) as error:
        raise DeploymentError(f"dump: ill-formed ({error}); export again") from error
    return policy


def list_arrays(policy: IntegerPolicy) -> dict[str, NDArray[Any]]:
    """Every array of the dump, in its order: those that define the policy, then those derived from them."""
    return integer_tensors(policy) | _derive(policy.net)


def _derive(net: IntegerNet) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for index, (layer, source) in enumerate(zip(net.layers, net.sources, strict=True)):
        name, output = f"layers.{index}", layer.output
        if output.wide:
            break  # the last layer, whose sums are the output
        scales = (np.asarray(source.scale), layer.weight_scale, np.asarray(output.scale))
        multiplier, shift = split_scale(effective_scale(*scales))
        arrays |= {f"{name}.multiplier": multiplier.astype(np.int32), f"{name}.shift": shift.astype(np.int32)}
        if net.requantization is Requantization.THRESHOLDS:
            integers = (output.zero_point, output.format.minimum, output.format.maximum)
            arrays[f"{name}.thresholds"] = find_thresholds(*scales, *integers)
        if layer.tabled is not None:
            arrays[f"{name}.table"] = layer.table.astype(np.int16)
    for index, cell in enumerate(net.cells):
        for part, lookup in cell.tables.items():
            arrays[f"cells.{index}.{part}"] = lookup.table.astype(np.int16)
        for part, scale in cell.scales.items():
            multiplier, shift = split_scale(effective_scale(*map(np.atleast_1d, scale)))
            name = f"cells.{index}.{part}"
            arrays |= {f"{name}.multiplier": multiplier.astype(np.int32), f"{name}.shift": shift.astype(np.int32)}
    return arrays


def _check_derived(policy: IntegerPolicy, arrays: dict[str, NDArray[Any]]) -> None:
    for name, expected in _derive(policy.net).items():
        if not np.array_equal(arrays[name], expected):
            raise DeploymentError(f"dump: {name} does not follow from the scales; export again")


def _read_npz(data: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _read_raw(data: bytes, entries: dict[str, Any]) -> dict[str, NDArray[Any]]:
    arrays = {}
    for name, entry in entries.items():
        shape = tuple(int(n) for n in entry["shape"])
        flat = np.frombuffer(data, np.dtype(entry["dtype"]), int(np.prod(shape)), int(entry["offset"]))
        arrays[name] = flat.reshape(shape)
    return arrays


class DumpRunner:
    """The golden model on the numbers of a dump."""

    kernel = KERNEL

    def __init__(self, files: Files) -> None:
        """Read the dump; DeploymentError as `read_dump`."""
        self._net = read_dump(files).net
        self.input, self.output = find_ports(self._net)

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs of a batch, as the protocol says."""
        check_input("dump", x, self.input)
        if self._net.recurrent:
            begin = x.shape[1] - count_state(self._net)
            q, state = self._net.run_step(x[:, :begin].astype(np.int64), unpack_state(self._net, x[:, begin:]))
            behind = pack_state(self._net, state, self.output.dtype)
            return np.concatenate([q.astype(self.output.dtype), behind], axis=1)
        return to_channel_last(self._net.run(to_channel_first(x).astype(np.int64))).astype(self.output.dtype)


DUMP = Backend(
    name="dump",
    model=ARRAYS,
    requantizations=tuple(Requantization),
    recurrent=True,
    branched=True,
    timed=False,
    kernels=(KERNEL,),
    float_kernels=(),
    identify=lambda: (KERNEL, np.__version__),
    write=write_dump,
    start=lambda files, _: DumpRunner(files),
    list_weight_types=lambda files: ("INT8",) * len(read_dump(files).net.layers),
)
