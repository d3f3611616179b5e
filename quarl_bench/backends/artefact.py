"""An artefact on disk: the model, everything needed to run it alone, and golden pairs that prove a run.

    model.tflite          takes integers (or floats) behind the observation transform and the input quantization;
                          other backends name and number their files differently
    golden.safetensors    golden pairs, and the numbers of the observation transform and the action head
    manifest.json         everything else, with the sha256 of every other file

Folders appear whole or not at all, and nothing in them is a pickle.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from quarl_bench.backends.files import GOLDEN, MANIFEST
from quarl_bench.backends.registry import BACKENDS, find_backend
from quarl_bench.errors import DeploymentError, PolicyError
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.storage.fp32 import (
    INTEGERS,
    WEIGHTS,
    build_head,
    build_transform,
    describe_head,
    describe_observation,
    end_tensors,
)
from quarl_bench.policies.storage.integers import build_parts, describe_parts
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.system.atomic import new_folder

SCHEMA_VERSION = 1
PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)  # a name of a file beside the model
STATE = "initial_state"
PAIR = ("observations", "inputs", "outputs", "actions")


@dataclass(frozen=True, eq=False)
class Golden:
    """Golden pairs; the first axis of each array counts them.

    `observations` (n, *shape) are raw. `inputs` and `outputs` are the model's own, in its layout (images channel-last)
    and type: int8 (uint8 for unsigned formats) where the policy is integer, else float32. `actions` are indices (n,) or
    values (n, actions). A recurrent policy's state stands behind the inputs, and the next one behind the outputs.
    """

    observations: NDArray[Any]
    inputs: NDArray[Any]
    outputs: NDArray[Any]
    actions: NDArray[Any]

    def __post_init__(self) -> None:
        lengths = {len(getattr(self, name)) for name in PAIR}
        if len(lengths) != 1 or 0 in lengths:
            raise DeploymentError(f"golden pairs: {sorted(lengths)} entries in {', '.join(PAIR)}; export again")


@dataclass(frozen=True)
class Runtime:
    """What ran the golden pairs when the artefact was made."""

    name: str
    version: str
    kernel: str
    machine: str


@dataclass(frozen=True, eq=False)
class Artefact:
    """Everything in the folder. `input` and `output` are None where the model computes in float32."""

    backend: str
    scheme: str
    source_sha256: str  # of the fp32 policy it was made from
    model: bytes
    transform: ObservationTransform
    head: ActionHead
    input: ActivationFormat | None
    output: ActivationFormat | None
    weight_types: tuple[str, ...]  # in the file, layer by layer
    parameters: int
    runtime: Runtime
    golden: Golden
    others: Mapping[str, bytes] = field(default_factory=dict)  # files that stand beside the model, by name
    initial_state: NDArray[Any] | None = None  # (count,) of a recurrent policy, as it stands behind the inputs

    @property
    def files(self) -> dict[str, bytes]:
        """The model and what stands beside it, by name."""
        return {find_backend(self.backend).model: self.model, **self.others}


def write_artefact(artefact: Artefact, folder: Path) -> None:
    """Write `folder`, or replace the artefact there; StoreError when something else is there."""
    pairs = {name: np.ascontiguousarray(getattr(artefact.golden, name)) for name in PAIR}
    state = {} if artefact.initial_state is None else {STATE: artefact.initial_state}
    golden = save(pairs | end_tensors(artefact.transform, artefact.head) | state)
    manifest = json.dumps(_describe(artefact, golden), indent=2, allow_nan=False) + "\n"
    with new_folder(folder, GOLDEN) as work:
        for name, content in artefact.files.items():
            (work / name).write_bytes(content)
        (work / GOLDEN).write_bytes(golden)
        (work / MANIFEST).write_text(manifest)


def read_artefact(folder: Path) -> Artefact:
    """Read a folder of `write_artefact`; DeploymentError, naming the file and the remedy, for anything else."""
    if any((folder / name).exists() for name in (WEIGHTS, INTEGERS)):
        raise DeploymentError(f"{folder}: a policy, no artefact; `quarl deploy` makes one")
    manifest = _read_manifest(folder / MANIFEST)
    with _ill_formed(folder / MANIFEST):
        backend = str(manifest["backend"])
        if backend not in BACKENDS:
            raise DeploymentError(f"{folder / MANIFEST}: {BACKENDS.explain_unknown(backend)}")
        model = _read_checked(folder / find_backend(backend).model, str(manifest["model"]["sha256"]))
        golden = _read_checked(folder / GOLDEN, str(manifest["golden"]["sha256"]))
        tensors = load(golden)
        return Artefact(
            backend=backend,
            scheme=str(manifest["scheme"]),
            source_sha256=str(manifest["source_sha256"]),
            model=model,
            transform=build_transform(manifest["observation"], tensors),
            head=build_head(manifest["head"], tensors),
            input=_read_format(manifest["input"]),
            output=_read_format(manifest["output"]),
            weight_types=tuple(str(kind) for kind in manifest["model"]["weight_types"]),
            parameters=int(manifest["parameters"]),
            runtime=Runtime(**manifest["runtime"]),
            golden=Golden(*(tensors[name] for name in PAIR)),
            initial_state=tensors.get(STATE),
            others={name: _read_checked(folder / name, str(sha256)) for name, sha256 in _list_others(manifest)},
        )


def _describe(artefact: Artefact, golden: bytes) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "backend": artefact.backend,
        "scheme": artefact.scheme,
        "arithmetic": _describe_arithmetic(artefact),
        "source_sha256": artefact.source_sha256,
        "model": {
            "file": find_backend(artefact.backend).model,
            "sha256": hashlib.sha256(artefact.model).hexdigest(),
            "bytes": len(artefact.model),
            "weight_types": list(artefact.weight_types),
        },
        "others": {name: hashlib.sha256(content).hexdigest() for name, content in artefact.others.items()},
        "golden": {
            "file": GOLDEN,
            "sha256": hashlib.sha256(golden).hexdigest(),
            "pairs": len(artefact.golden.actions),
        },
        "parameters": artefact.parameters,
        "observation": describe_observation(artefact.transform),
        "input": _describe_port(artefact.input, artefact.golden.inputs),
        "output": _describe_port(artefact.output, artefact.golden.outputs),
        "head": describe_head(artefact.head),
        "runtime": asdict(artefact.runtime),
    }


def _describe_arithmetic(artefact: Artefact) -> str:
    if artefact.input is not None:
        return "integers between the input quantization and the action"
    if any(kind.startswith("INT") for kind in artefact.weight_types):
        return "integer sums of integer weights and of float32 activations that are quantized at every call"
    return f"float32, with the weights that {artefact.scheme} leaves"


def _describe_port(format: ActivationFormat | None, values: NDArray[Any]) -> dict[str, Any]:
    port: dict[str, Any] = {"shape": list(values.shape[1:]), "dtype": str(values.dtype)}
    if format is None:
        return port
    port |= {
        "bit_width": format.format.bit_width,
        "signed": format.format.signed,
        "scale": float(format.scale),  # float32 numbers survive JSON's float64 unchanged
        "zero_point": format.zero_point,
    }
    return port | describe_parts(format)


def _list_others(manifest: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    others: dict[str, Any] = manifest["others"]
    for name in others:
        if PLAIN.fullmatch(name) is None:  # it would lead elsewhere, or be an option of a compiler
            raise ValueError(f"{name[:80]!r} is no plain name of a file")
    return others.items()


def _read_format(port: dict[str, Any]) -> ActivationFormat | None:
    if port["dtype"] == "float32":
        return None
    integers = IntegerFormat(int(port["bit_width"]), bool(port["signed"]))
    scale = np.float32(float(port["scale"]))
    if not (np.isfinite(scale) and scale > 0):
        raise ValueError(f"scale {scale}")
    return build_parts(port, ActivationFormat(integers, scale, int(port["zero_point"])))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads(_read_bytes(path))
    except ValueError as error:
        raise DeploymentError(f"{path}: not JSON ({error}); export again") from error
    if not isinstance(manifest, dict) or manifest.get("schema_version") != SCHEMA_VERSION:
        raise DeploymentError(f"{path}: schema_version is not {SCHEMA_VERSION}; use a matching version of quarl_bench")
    return manifest


def _read_checked(path: Path, sha256: str) -> bytes:
    data = _read_bytes(path)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DeploymentError(
            f"{path}: its sha256 is not the manifest's, so the file is truncated or exchanged; export again"
        )
    return data


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DeploymentError(
            f"{path}: {error.strerror or error}; an artefact holds {MANIFEST}, {GOLDEN} and a model"
        ) from error


@contextmanager
def _ill_formed(path: Path) -> Iterator[None]:
    """Name the manifest in the error for content that no export writes."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, SafetensorError, PolicyError) as error:
        raise DeploymentError(f"{path}: ill-formed, or not this golden file's ({error!r}); export again") from error
