"""A policy as one message: real int8 or fp16 bytes, quantized once per broadcast.

The bytes are a safetensors file whose metadata hold version, formats and both ends of the policy, optionally inside a
zstd frame. Receivers read the tensors where they lie, without a copy.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.storage.fp32 import (
    build_head,
    build_transform,
    describe_head,
    describe_observation,
    end_tensors,
)
from quarl_bench.policies.storage.integers import build_integers, describe_integers, integer_tensors
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.calibration.formats import Range
from quarl_bench.quantization.calibration.ranges import Ranges
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats, Linear, Net
from quarl_bench.quantization.ptq import quantize_net, quantize_to_ranges
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system.extras import require

INT8 = Scheme.parse("int8")  # of actors that compute in integers
FRAME = b"\x28\xb5\x2f\xfd"  # how a zstd frame begins
LEVEL = 1  # of zstd: the fastest; weights hardly shrink at any
LENGTH = 8  # bytes of a safetensors file that say how long its header is
TYPES = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "I8": np.int8, "I32": np.int32, "I64": np.int64,
}  # fmt: skip
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class FloatNet:
    """Weights (outputs, inputs) of float32, or of float16 that are widened as they are used; fp32 biases."""

    weights: tuple[NDArray[np.floating[Any]], ...]
    biases: tuple[Floats, ...]
    activations: tuple[Activation, ...]

    def widen(self) -> Net:
        """The float16 or float32 weights as a float32 Net of linear layers."""
        layers = zip(self.weights, self.biases, self.activations, strict=True)
        return Net(
            (self.weights[0].shape[1],),
            tuple(Linear(np.asarray(w, dtype=np.float32), bias, activation) for w, bias, activation in layers),
        )


@dataclass(frozen=True, eq=False)
class Broadcast:
    """What an actor acts by; `sums` are the row sums of an integer net's weights, made once for all actors."""

    version: int
    transform: ObservationTransform
    net: FloatNet | IntegerNet
    head: ActionHead
    sums: tuple[NDArray[np.int64], ...] = ()


def encode(policy: PolicyNet, version: int, *, shipped: str, precision: str, states: Floats | None = None) -> Bytes:
    """The message of `policy` in the precision `shipped`, for actors that compute in `precision`.

    int8 actors need `states` (n, *shape), raw observations on which the ranges of activations are taken.
    """
    integer = precision == "int8"
    policy = center(policy)
    if integer and shipped == "int8":
        return _encode_integers(quantize(policy, states), version)
    header: dict[str, Any] = {
        "version": version,
        "form": shipped,
        "observation": describe_observation(policy.transform),
        "head": describe_head(policy.head),
        "activations": [str(layer.activation) for layer in policy.net.layers],
    }
    if integer:
        header["ranges"] = _list_ranges(quantize(policy, states).net)
    tensors: dict[str, NDArray[Any]] = dict(end_tensors(policy.transform, policy.head))
    for index, layer in enumerate(policy.net.layers):
        tensors |= _PACK[shipped](f"layers.{index}", layer.weight) | {f"layers.{index}.bias": layer.bias}
    return _write(tensors, header)


def quantize(policy: PolicyNet, states: Floats | None) -> IntegerPolicy:
    """The integer policy of int8 actors, calibrated on the raw observations `states` (n, *shape)."""
    policy = center(policy)
    net = quantize_net(policy.net, INT8, None if states is None else policy.transform.apply(states))
    assert not isinstance(net, Net)  # noqa: S101 (an integer scheme)
    return IntegerPolicy(policy.transform, IntegerNet.from_quantized(net), policy.head)


def center(policy: PolicyNet) -> PolicyNet:
    """A policy that acts alike, with the mean over actions taken off the values of discrete ones.

    Integers then resolve what tells actions apart, not how good the state is: the last layer's range shrinks by orders.
    """
    if not policy.head.discrete:
        return policy
    last = policy.net.layers[-1]
    centered = replace(
        last, weight=last.weight - last.weight.mean(axis=0, keepdims=True), bias=last.bias - last.bias.mean()
    )
    return PolicyNet(policy.transform, Net(policy.net.input_shape, (*policy.net.layers[:-1], centered)), policy.head)


def compress(message: Bytes) -> Bytes:
    """The message in a zstd frame; MissingExtra without zstandard."""
    return np.frombuffer(_zstd().ZstdCompressor(level=LEVEL).compress(message.data), dtype=np.uint8)


def decompress(message: Bytes) -> Bytes:
    """The message out of its zstd frame, if it has one."""
    return decompress_frame(message) if message[: len(FRAME)].tobytes() == FRAME else message


def decompress_frame(message: Bytes) -> Bytes:
    """What is in a zstd frame."""
    return np.frombuffer(_zstd().ZstdDecompressor().decompress(message.data), dtype=np.uint8)


Parts = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def deserialize(message: Bytes) -> Parts:
    """Header, and tensors that share the message's memory; PolicyError for anything else."""
    try:
        length = int(message[:LENGTH].view(np.int64)[0])
        entries = json.loads(message[LENGTH : LENGTH + length].tobytes())
        header = json.loads(entries.pop("__metadata__")["quarl"])
        body = message[LENGTH + length :]
        return header, {name: _view(body, entry) for name, entry in entries.items()}
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise PolicyError(f"a broadcast cannot be read ({error!r}); all nodes need the same version") from error


def build(parts: Parts) -> Broadcast:
    """What the parts stand for; weights shipped for int8 actors in another form are quantized here."""
    header, tensors = parts
    if header["form"] == "integer":
        policy = build_integers(header["architecture"], tensors)
        sums = tuple(tensors[f"layers.{i}.sum"] for i in range(len(policy.net.layers)))
        return Broadcast(header["version"], policy.transform, policy.net, policy.head, sums)
    names = [f"layers.{index}" for index in range(len(header["activations"]))]
    net = FloatNet(
        tuple(_UNPACK[header["form"]](name, tensors) for name in names),
        tuple(tensors[f"{name}.bias"] for name in names),
        tuple(Activation(name) for name in header["activations"]),
    )
    transform, head = build_transform(header["observation"], tensors), build_head(header["head"], tensors)
    if "ranges" not in header:
        return Broadcast(header["version"], transform, net, head)
    first, *outputs = (Range(*pair) for pair in header["ranges"])
    integers = IntegerNet.from_quantized(quantize_to_ranges(net.widen(), INT8, Ranges(first, tuple(outputs))))
    return Broadcast(header["version"], transform, integers, head, sum_rows(integers))


def sum_rows(net: IntegerNet) -> tuple[NDArray[np.int64], ...]:
    """Of every layer's weights: what a kernel needs to fold zero points into biases."""
    return tuple(layer.weight.sum(axis=1, dtype=np.int64) for layer in net.layers)


def _encode_integers(policy: IntegerPolicy, version: int) -> Bytes:
    header = {"version": version, "form": "integer", "architecture": describe_integers(policy)}
    sums = {f"layers.{index}.sum": array for index, array in enumerate(sum_rows(policy.net))}
    return _write(integer_tensors(policy) | sums, header)


def _write(tensors: dict[str, NDArray[Any]], header: dict[str, Any]) -> Bytes:
    contiguous = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    return np.frombuffer(save(contiguous, {"quarl": json.dumps(header)}), dtype=np.uint8)


def _view(body: Bytes, entry: dict[str, Any]) -> NDArray[Any]:
    first, last = entry["data_offsets"]
    return body[first:last].view(TYPES[entry["dtype"]]).reshape(entry["shape"])


def _list_ranges(net: IntegerNet) -> list[list[float]]:
    """Ends of what input and outputs can hold: quantizing to them gives the same formats again."""
    formats = [net.input, *(layer.output for layer in net.layers)]
    pairs = [f.dequantize(np.array([f.format.minimum, f.format.maximum])) for f in formats]
    return [[float(low), float(high)] for low, high in pairs]


def _pack_half(name: str, weight: Floats) -> dict[str, NDArray[Any]]:
    with np.errstate(over="ignore"):
        half = weight.astype(np.float16)
    if not np.isfinite(half).all():
        raise PolicyError(f"fp16: {name} holds values beyond 65504; the learner diverged, or fp32 is needed")
    return {f"{name}.weight": half}


def _pack_bytes(name: str, weight: Floats) -> dict[str, NDArray[Any]]:
    scale = np.float32(max(float(np.abs(weight).max()), float(np.finfo(np.float32).tiny)) / 127)
    return {
        f"{name}.weight": np.clip(np.rint(weight / scale), -127, 127).astype(np.int8),
        f"{name}.weight_scale": scale.reshape(1),
    }


_PACK: dict[str, Callable[[str, Floats], dict[str, NDArray[Any]]]] = {
    "fp32": lambda name, weight: {f"{name}.weight": weight},
    "fp16": _pack_half,
    "int8": _pack_bytes,
}
_UNPACK: dict[str, Callable[[str, dict[str, NDArray[Any]]], NDArray[np.floating[Any]]]] = {
    "fp32": lambda name, tensors: tensors[f"{name}.weight"],
    "fp16": lambda name, tensors: tensors[f"{name}.weight"],
    "int8": lambda name, tensors: tensors[f"{name}.weight"].astype(np.float32) * tensors[f"{name}.weight_scale"],
}


def _zstd() -> Any:
    return require("zstandard", "actorq", "compressed broadcasts (zstandard)")
