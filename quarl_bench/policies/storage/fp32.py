"""A policy on disk: `policy.safetensors` for the numbers, `manifest.json` for everything else. No pickle anywhere.

The manifest names the file's sha256 and every shape, so that a truncated or exchanged file is refused by name. Folders
appear whole or not at all.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.branches import Branch
from quarl_bench.quantization.net import Conv2d, Layer, LayerNorm, Linear, Net
from quarl_bench.quantization.recurrent.cells import Cell, CellKind
from quarl_bench.system.atomic import new_folder

SCHEMA_VERSION = 1
WEIGHTS = "policy.safetensors"
INTEGERS = "integers.safetensors"  # the numbers of an integer policy, in the place of the weights
MANIFEST = "manifest.json"
OWN_KEYS = ("schema_version", "form", "sha256", "architecture")
Tensors = dict[str, NDArray[Any]]
AnyPolicy = TypeVar("AnyPolicy")


@dataclass(frozen=True, eq=False)
class StoredPolicy:
    """A policy, the content hash that names it in measurements, and what its manifest says about its origin."""

    policy: PolicyNet
    sha256: str
    metadata: dict[str, Any] = field(default_factory=dict)


def save_policy(policy: PolicyNet, folder: Path, metadata: dict[str, Any]) -> StoredPolicy:
    """Write `policy` to `folder`, replacing a policy there; `metadata` joins the manifest (JSON types only)."""
    write_policy(folder, WEIGHTS, _tensors_of(policy), {"architecture": _architecture_of(policy)} | metadata)
    return StoredPolicy(policy, hash_policy(policy), metadata)


def write_policy(folder: Path, file: str, tensors: Tensors, manifest: dict[str, Any]) -> dict[str, Any]:
    """Write the numbers to `file` of `folder`, replacing a policy there, and beside them the manifest; return that."""
    numbers = save(tensors)
    manifest = {"schema_version": SCHEMA_VERSION, "sha256": hashlib.sha256(numbers).hexdigest()} | manifest
    lines = (f"  {json.dumps(name)}: {json.dumps(value, allow_nan=False)}" for name, value in manifest.items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"  # a line for each key: shapes and curves would be columns of numbers
    with new_folder(folder, WEIGHTS, INTEGERS) as work:
        (work / file).write_bytes(numbers)
        (work / MANIFEST).write_text(text)
    return manifest


def hash_policy(policy: PolicyNet) -> str:
    """The content hash of a policy: everything that decides its actions, the numbers and the architecture."""
    architecture = json.dumps(_architecture_of(policy), sort_keys=True)
    return hashlib.sha256(save(_tensors_of(policy)) + architecture.encode()).hexdigest()


def load_policy(folder: Path) -> StoredPolicy:
    """Read a folder of `save_policy`; PolicyError, naming the file and the remedy, for anything else."""
    policy, manifest = read_policy(folder, WEIGHTS, _build)
    return StoredPolicy(policy, hash_policy(policy), list_metadata(manifest))


def read_policy(
    folder: Path, file: str, build: Callable[[dict[str, Any], Tensors], AnyPolicy]
) -> tuple[AnyPolicy, dict[str, Any]]:
    """What `build` makes of the architecture and the numbers that `write_policy` wrote, and the manifest."""
    manifest = _read_manifest(folder, file)
    numbers = _read_bytes(folder, file)
    if hashlib.sha256(numbers).hexdigest() != manifest["sha256"]:
        raise PolicyError(
            f"{folder / file}: its sha256 is not the manifest's, so the file is truncated or exchanged; restore both"
        )
    try:
        tensors = load(numbers)
    except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a number format that NumPy lacks
        raise PolicyError(f"{folder / file}: not a safetensors file ({error}); restore it") from error
    try:
        return build(manifest["architecture"], tensors), manifest
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise PolicyError(f"{folder / MANIFEST}: architecture is ill-formed ({error!r}); restore it") from error
    except PolicyError as error:
        raise PolicyError(f"{folder}: {error}") from error


def list_metadata(manifest: dict[str, Any]) -> dict[str, Any]:
    """What a manifest says beside the keys that every folder of a policy has."""
    return {key: value for key, value in manifest.items() if key not in OWN_KEYS}


def _tensors_of(policy: PolicyNet) -> Tensors:
    tensors: Tensors = {}
    for index, layer in enumerate(policy.net.layers):
        tensors |= {f"layers.{index}.weight": layer.weight, f"layers.{index}.bias": layer.bias}
        if isinstance(layer, Linear) and layer.norm is not None:
            tensors |= {f"norms.{index}.weight": layer.norm.weight, f"norms.{index}.bias": layer.norm.bias}
    return tensors | end_tensors(policy.transform, policy.head)


def end_tensors(transform: ObservationTransform, head: ActionHead) -> Tensors:
    """The numbers of a policy's two ends, its observation transform and its action head."""
    tensors: Tensors = {}
    statistics = transform.normalization
    if statistics is not None:
        tensors |= {"normalization.mean": statistics.mean, "normalization.variance": statistics.variance}
    if head.low is not None and head.high is not None:
        tensors |= {"action.low": head.low, "action.high": head.high}
    return tensors


def _architecture_of(policy: PolicyNet) -> dict[str, Any]:
    return (
        {
            "observation": describe_observation(policy.transform),
            "layers": [_describe(layer) for layer in policy.net.layers],
            "head": describe_head(policy.head),
        }
        | describe_cells(policy.net.cells)
        | describe_branches(policy.net.branches)
    )


def describe_cells(cells: Sequence[Cell]) -> dict[str, Any]:
    """What `build_cells` needs; nothing of a net that has none."""
    return {"cells": [{"kind": str(cell.kind), "place": cell.place} for cell in cells]} if cells else {}


def build_cells(architecture: dict[str, Any]) -> tuple[Cell, ...]:
    """Inverse of `describe_cells`; KeyError, TypeError or ValueError when ill-formed."""
    return tuple(Cell(CellKind(entry["kind"]), int(entry["place"])) for entry in architecture.get("cells", ()))


def describe_branches(branches: Sequence[Branch]) -> dict[str, Any]:
    """What `build_branches` needs; nothing of a net that has none."""
    entries = [{"shape": list(branch.shape), "layers": branch.layers} for branch in branches]
    return {"branches": entries} if entries else {}


def build_branches(architecture: dict[str, Any]) -> tuple[Branch, ...]:
    """Inverse of `describe_branches`; KeyError, TypeError or ValueError when ill-formed."""
    entries = architecture.get("branches", ())
    return tuple(Branch(tuple(int(n) for n in entry["shape"]), int(entry["layers"])) for entry in entries)


def describe_observation(transform: ObservationTransform) -> dict[str, Any]:
    """What `build_transform` needs beside `end_tensors`; JSON types."""
    statistics = transform.normalization
    return {
        "shape": list(transform.shape),
        "image": transform.image,
        "normalization": None if statistics is None else _describe_normalization(statistics),
    }


def _describe_normalization(statistics: Normalization) -> dict[str, Any]:
    """A clip of None is none: JSON has no infinity."""
    return {"clip": statistics.clip if math.isfinite(statistics.clip) else None, "epsilon": statistics.epsilon}


def describe_head(head: ActionHead) -> dict[str, Any]:
    """What `build_head` needs beside `end_tensors`; JSON types."""
    parts = {"sizes": list(head.sizes)} if head.sizes else {}
    return {"kind": str(head.kind), "mean_limit": head.mean_limit} | parts | ({"masked": True} if head.masked else {})


def _describe(layer: Layer) -> dict[str, Any]:
    common = {"shape": list(layer.weight.shape), "activation": str(layer.activation)}
    if isinstance(layer, Linear):
        norm = {} if layer.norm is None else {"norm": {"epsilon": layer.norm.epsilon}}
        return {"kind": "linear"} | common | norm
    return {"kind": "conv2d"} | common | {"stride": layer.stride}


def _build(architecture: dict[str, Any], tensors: Tensors) -> PolicyNet:
    transform = build_transform(architecture["observation"], tensors)
    layers = tuple(_read_layer(index, entry, tensors) for index, entry in enumerate(architecture["layers"]))
    net = Net(transform.input_shape, layers, build_cells(architecture), build_branches(architecture))
    return PolicyNet(transform, net, build_head(architecture["head"], tensors))


def build_transform(observation: dict[str, Any], tensors: Tensors) -> ObservationTransform:
    """Inverse of `describe_observation`; KeyError, TypeError, ValueError or PolicyError when ill-formed."""
    statistics = observation["normalization"]
    normalization = None
    if statistics is not None:
        mean, variance = tensors["normalization.mean"], tensors["normalization.variance"]
        clip = math.inf if statistics["clip"] is None else float(statistics["clip"])
        normalization = Normalization(mean, variance, clip, float(statistics["epsilon"]))
    shape = tuple(int(n) for n in observation["shape"])
    return ObservationTransform(shape, bool(observation["image"]), normalization)


def build_head(head: dict[str, Any], tensors: Tensors) -> ActionHead:
    """Inverse of `describe_head`; KeyError, TypeError, ValueError or PolicyError when ill-formed."""
    limit = None if head["mean_limit"] is None else float(head["mean_limit"])
    sizes = tuple(int(size) for size in head.get("sizes", ()))
    bounds = tensors.get("action.low"), tensors.get("action.high")
    return ActionHead(HeadKind(head["kind"]), *bounds, limit, sizes, masked=bool(head.get("masked", False)))


def _read_layer(index: int, entry: dict[str, Any], tensors: Tensors) -> Layer:
    weight, bias = tensors[f"layers.{index}.weight"], tensors[f"layers.{index}.bias"]
    shape = tuple(int(n) for n in entry["shape"])
    if weight.shape != shape:
        raise PolicyError(f"layer {index}: the manifest says shape {shape}, the weights have {weight.shape}")
    activation = Activation(entry["activation"])
    if entry["kind"] == "linear":
        return Linear(weight, bias, activation, _read_norm(index, entry, tensors))
    if entry["kind"] == "conv2d":
        return Conv2d(weight, bias, int(entry["stride"]), activation)
    raise PolicyError(f"layer {index}: unknown kind {entry['kind']!r}; known are linear and conv2d")


def _read_norm(index: int, entry: dict[str, Any], tensors: Tensors) -> LayerNorm | None:
    if "norm" not in entry:
        return None
    weight, bias = tensors[f"norms.{index}.weight"], tensors[f"norms.{index}.bias"]
    return LayerNorm(weight, bias, float(entry["norm"]["epsilon"]))


def _read_manifest(folder: Path, file: str) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = json.loads(_read_bytes(folder, MANIFEST, file))
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{path}: not JSON ({error}); restore it") from error
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        raise PolicyError(f"{path}: schema_version is not {SCHEMA_VERSION}; use a matching version of quarl_bench")
    for key in ("sha256", "architecture"):
        if key not in manifest:
            raise PolicyError(f"{path}: key {key!r} is missing; restore it")
    return manifest


def _read_bytes(folder: Path, name: str, numbers: str | None = None) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise PolicyError(
            f"{folder / name}: {error.strerror or error}; a policy folder holds {numbers or name} and {MANIFEST}"
        ) from error
