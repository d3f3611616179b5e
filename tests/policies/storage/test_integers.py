"""Integer policies on disk: numbers that no quantizer writes are refused, though hash and manifest agree."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from quarl_bench.errors import PolicyError
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.storage.fp32 import MANIFEST
from quarl_bench.policies.storage.integers import INTEGERS, load_integers, save_integers
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import make_policy

STATES = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
WEIGHT, SCALE, BIAS = (f"layers.0.{name}" for name in ("weight", "weight_scale", "bias"))
Tensors, Layers = dict[str, Any], list[dict[str, Any]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A policy of 4 bits with a tanh."""
    policy = make_policy(HeadKind.TANH).quantize(Scheme.parse("int4"), STATES).to_integer()
    save_integers(policy, tmp_path / "policy", {})
    return tmp_path / "policy"


def change_tensors(folder: Path, change: Callable[[Tensors], object]) -> None:
    """Replace numbers and make the manifest agree."""
    tensors = {name: array.copy() for name, array in load((folder / INTEGERS).read_bytes()).items()}
    change(tensors)
    data = save(tensors)
    (folder / INTEGERS).write_bytes(data)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {"sha256": hashlib.sha256(data).hexdigest()}))


def change_layers(folder: Path, change: Callable[[Layers], object]) -> None:
    """Replace what the manifest says of the layers."""
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest["architecture"]["layers"])
    (folder / MANIFEST).write_text(json.dumps(manifest))


NUMBERS: dict[str, tuple[Callable[[Tensors], object], str]] = {
    "nan": (lambda t: t[SCALE].fill(np.nan), "layer 0: weight scales are positive and finite"),
    "negative": (lambda t: t[SCALE].fill(-1), "layer 0: weight scales are positive and finite"),
    "infinite": (lambda t: t[SCALE].fill(np.inf), "layer 0: weight scales are positive and finite"),
    "none": (lambda t: t.update({SCALE: np.zeros(0, np.float32)}), "layer 0: .*one for all outputs or one for each"),
    "three": (lambda t: t.update({SCALE: np.ones(3, np.float32)}), "layer 0: .*one for all outputs or one for each"),
    "large": (lambda t: t[WEIGHT].fill(255), "layer 0: weights of 4 bits outside their range"),
    "rank": (lambda t: t.update({BIAS: np.zeros((len(t[BIAS]), 2), np.int32)}), "layer 0 .*do not belong together"),
}
LAYERS: dict[str, tuple[Callable[[Layers], object], str]] = {
    "kind": (lambda layers: layers[0].update(kind="conv2d"), "do not belong together"),
    "activation": (lambda layers: layers[0].update(activation="none"), "behind a table, and behind nothing else"),
    "tanh": (lambda layers: layers[0].update(tanh=None), "behind a table, and behind nothing else"),
    "empty": (lambda layers: layers.clear(), "ill-formed"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(folder: Path, name: str) -> None:
    change, said = NUMBERS[name]
    change_tensors(folder, change)
    with pytest.raises(PolicyError, match=f"policy: {said}"):
        load_integers(folder)


@pytest.mark.parametrize("name", LAYERS)
def test_layers(folder: Path, name: str) -> None:
    change, said = LAYERS[name]
    change_layers(folder, change)
    with pytest.raises(PolicyError, match=said):
        load_integers(folder)


def test_what_was_not_changed_loads(folder: Path) -> None:
    change_tensors(folder, lambda _: None)
    assert load_integers(folder).policy.act(STATES).shape == (50, 2)


def test_weights_that_are_not_packed_load(folder: Path) -> None:
    """Files from before weights were packed."""
    stored = load_integers(folder)
    first = stored.policy.net.layers[0]
    change_tensors(folder, lambda tensors: tensors.update({WEIGHT: first.weight}))
    assert load_integers(folder).sha256 == stored.sha256


def test_weights_of_another_number_of_bytes(folder: Path) -> None:
    change_tensors(folder, lambda tensors: tensors.update({WEIGHT: tensors[WEIGHT][:-1]}))
    with pytest.raises(PolicyError, match=r"ill-formed .*\d+ bytes for \d+ integers of 4 bits.*; restore it"):
        load_integers(folder)
