"""Policies on disk: exact round trips, and everything that is not a policy refused as a PolicyError."""

import hashlib
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from quarl_bench.errors import PolicyError, StoreError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import MANIFEST, WEIGHTS, load_policy, save_policy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from tests.support.archives import edit_manifest
from tests.support.documents import JSON, list_paths
from tests.support.sizes import draw_examples
from tests.support.strategies import SEEDS, make_policy, normal

ABOUT = {"algo": "ppo", "seed": 3, "curve": [{"mean": 1.5}], "published": None}


def make_image_policy() -> PolicyNet:
    """A convolution of stride 2 over images."""
    rng = np.random.default_rng(0)
    conv = Conv2d(normal(rng, 4, 3, 3, 3), normal(rng, 4), 2, Activation.RELU)
    net = Net((3, 9, 7), (conv, Linear(normal(rng, 5, 48), normal(rng, 5))))
    return PolicyNet(ObservationTransform((3, 9, 7), image=True), net, ActionHead(HeadKind.ARGMAX))


def make_limited_policy() -> PolicyNet:
    """Normalized, with the limit of gSDE's mean."""
    base = make_policy(HeadKind.TANH, normalized=True)
    return PolicyNet(base.transform, base.net, ActionHead(HeadKind.TANH, base.head.low, base.head.high, 2.0))


def wear_masks(policy: PolicyNet) -> PolicyNet:
    """The same, trained within masks."""
    return replace(policy, head=replace(policy.head, masked=True))


POLICIES: dict[str, Callable[[], PolicyNet]] = {
    "argmax": make_policy,
    "parts": lambda: make_policy(HeadKind.PARTS),
    "masked bits": lambda: wear_masks(make_policy(HeadKind.BITS)),
    "clip": lambda: make_policy(HeadKind.CLIP),
    "limited": make_limited_policy,
    "image": make_image_policy,
}


def rewrite_weights(folder: Path, data: bytes) -> None:
    """Replace the weights and make the manifest agree."""
    (folder / WEIGHTS).write_bytes(data)
    edit_manifest(folder, lambda manifest: manifest.update(sha256=hashlib.sha256(data).hexdigest()))


def change_tensors(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """The same for single tensors."""
    tensors = load((folder / WEIGHTS).read_bytes())
    change(tensors)
    rewrite_weights(folder, save(tensors))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_policy(make_limited_policy(), tmp_path / "policy", ABOUT)
    return tmp_path / "policy"


def refuse(folder: Path, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as caught:
        load_policy(folder)
    assert str(folder) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("kind", POLICIES)
def test_round_trip(tmp_path: Path, kind: str) -> None:
    policy = POLICIES[kind]()
    stored = save_policy(policy, tmp_path / "policy", ABOUT)
    loaded = load_policy(tmp_path / "policy")
    assert (loaded.sha256, loaded.metadata) == (stored.sha256, ABOUT)
    assert loaded.policy.transform.shape == policy.transform.shape
    before, after = policy.head, loaded.policy.head
    for name in ("kind", "mean_limit", "sizes", "masked"):
        assert getattr(after, name) == getattr(before, name)
    for old, new in zip(policy.net.layers, loaded.policy.net.layers, strict=True):
        assert (type(old), old.activation, getattr(old, "stride", 0)) == (
            type(new),
            new.activation,
            getattr(new, "stride", 0),
        )
        np.testing.assert_array_equal(old.weight, new.weight)
        np.testing.assert_array_equal(old.bias, new.bias)
    rng = np.random.default_rng(0)
    x = normal(rng, 100, *policy.transform.shape) if kind != "image" else rng.integers(0, 256, (9, 3, 9, 7), np.uint8)
    np.testing.assert_array_equal(loaded.policy.act(x), policy.act(x))


def test_the_same_policy_has_the_same_hash_and_another_another(tmp_path: Path) -> None:
    hashes = [save_policy(make_policy(seed=seed), tmp_path / str(i), {}).sha256 for i, seed in enumerate((0, 0, 1))]
    assert hashes[0] == hashes[1] != hashes[2]


def test_saving_replaces(tmp_path: Path) -> None:
    for seed in (0, 1):
        save_policy(make_policy(seed=seed), tmp_path / "policy", {"seed": seed})
    assert load_policy(tmp_path / "policy").metadata == {"seed": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_saving_into_an_unwritable_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot write"):
        save_policy(make_policy(), tmp_path / "file" / "policy", {})


@pytest.mark.parametrize("name", [WEIGHTS, MANIFEST])
def test_missing_files(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refuse(folder, f"{name}: No such file")


def test_missing_folder(tmp_path: Path) -> None:
    refuse(tmp_path / "none", "a policy folder holds policy.safetensors and manifest.json")


@pytest.mark.parametrize("keep", [0, 1, 8, 100, -1])
def test_truncated_weights(folder: Path, keep: int) -> None:
    data = (folder / WEIGHTS).read_bytes()[:keep]
    (folder / WEIGHTS).write_bytes(data)
    refuse(folder, "sha256 is not the manifest's, so the file is truncated or exchanged")
    rewrite_weights(folder, data)
    refuse(folder, "not a safetensors file")


def test_exchanged_weights(folder: Path, tmp_path: Path) -> None:
    save_policy(make_policy(seed=5), tmp_path / "other", {})
    (folder / WEIGHTS).write_bytes((tmp_path / "other" / WEIGHTS).read_bytes())
    refuse(folder, "truncated or exchanged")


@pytest.mark.parametrize(
    "data", [pickle.dumps({"layers.0.weight": 1}), b"PK\x03\x04" + bytes(100), b"\xff" * 64, b"{}"], ids=range(4)
)
def test_pickles_and_other_bytes_are_no_weights(folder: Path, data: bytes) -> None:
    rewrite_weights(folder, data)
    refuse(folder, "not a safetensors file")


def test_a_pickle_is_never_executed(folder: Path, tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "executed",)

    data = pickle.dumps(Bomb())
    rewrite_weights(folder, data)
    refuse(folder, "not a safetensors file")
    (folder / MANIFEST).write_bytes(data)
    refuse(folder, "not JSON")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda m: m["architecture"]["layers"][0].update(shape=[8, 5]), r"manifest says shape \(8, 5\)"),
        (lambda m: m["architecture"]["layers"][1].update(shape=[8, 2]), r"manifest says shape \(8, 2\)"),
        (lambda m: m["architecture"]["layers"][0].update(shape=[8, 4, 1]), "manifest says shape"),
        (lambda m: m["architecture"]["layers"][0].update(kind="conv2d", stride=1), "do not belong together"),
        (lambda m: m["architecture"]["layers"][0].update(kind="gru"), "unknown kind 'gru'"),
        (lambda m: m["architecture"]["layers"][0].update(activation="celu"), "ill-formed"),
        (lambda m: m["architecture"]["layers"].pop(0), "manifest says shape"),
        (lambda m: m["architecture"]["layers"].pop(1), "8 outputs for 2 action bounds"),
        (lambda m: m["architecture"].update(layers=[]), "at least one layer"),
        (lambda m: m["architecture"]["layers"].append(m["architecture"]["layers"][0]), "ill-formed"),
        (lambda m: m["architecture"]["observation"].update(shape=[5]), r"statistics of shape \(4,\)"),
        (lambda m: m["architecture"]["observation"].update(normalization={"clip": -1, "epsilon": 1}), "positive"),
        (lambda m: m["architecture"]["observation"].update(normalization={"clip": 1}), "ill-formed"),
        (lambda m: m["architecture"]["head"].update(kind="argmax"), "no action bounds"),
        (lambda m: m["architecture"]["head"].update(mean_limit=float("nan")), "mean_limit"),
        (lambda m: m["architecture"].pop("head"), "ill-formed"),
        (lambda m: m.pop("architecture"), "key 'architecture' is missing"),
        (lambda m: m.pop("sha256"), "key 'sha256' is missing"),
        (lambda m: m.pop("schema_version"), "schema_version is not 1"),
        (lambda m: m.update(schema_version=2), "schema_version is not 1"),
        (lambda m: m.update(schema_version="1"), "schema_version is not 1"),
        (lambda m: m.update(sha256=3), "truncated or exchanged"),
    ],
    ids=range(22),
)
def test_a_manifest_that_contradicts_the_weights_or_itself(
    folder: Path, change: Callable[[dict[str, Any]], object], said: str
) -> None:
    """With the right sha256, which these manifests keep."""
    edit_manifest(folder, change)
    refuse(folder, said)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "not json",
        "\x00",
        '{"schema_version": 1',
        "[]",
        "7",
        "[" * 100_000,
        '{"schema_version": ' + "1" * 5000 + "}",
    ],
    ids=range(9),
)
def test_json_garbage(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    refuse(folder, "not JSON|schema_version")


@pytest.mark.parametrize(
    "stride", [0, -1, 0.5, float("inf"), float("nan"), None, "2x", 10**400], ids=lambda s: str(s)[:5]
)
def test_strides_no_convolution_has(tmp_path: Path, stride: object) -> None:
    save_policy(make_image_policy(), tmp_path, {})
    edit_manifest(tmp_path, lambda m: m["architecture"]["layers"][0].update(stride=stride))
    refuse(tmp_path, "a stride is at least 1|ill-formed|cannot follow|inputs cannot")


def test_bytes_that_are_no_text(folder: Path) -> None:
    (folder / MANIFEST).write_bytes(b"\xff\xfe\x81")
    refuse(folder, "not JSON")


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda t: t["layers.1.weight"].__setitem__((0, 0), np.nan), "layer 1 .* NaN or infinite"),
        (lambda t: t["layers.0.bias"].__setitem__(0, np.inf), "layer 0 .* NaN or infinite"),
        (lambda t: t["normalization.mean"].__setitem__(0, np.nan), "statistics must be finite"),
        (lambda t: t["normalization.variance"].__setitem__(0, -1), "not negative"),
        (lambda t: t["action.low"].__setitem__(0, np.nan), "must be finite"),
        (lambda t: t.update({"action.low": t["action.high"], "action.high": t["action.low"]}), "low <= high"),
        (lambda t: t.pop("action.low"), "needs bounds"),
        (lambda t: t.pop("layers.0.bias"), "ill-formed .*layers.0.bias"),
        (lambda t: t.pop("normalization.mean"), "ill-formed .*normalization.mean"),
        (lambda t: t.update({"layers.0.weight": t["layers.0.weight"].astype(np.float16)}), "must be float32"),
        (lambda t: t.update({"layers.0.weight": t["layers.0.weight"].T.copy()}), "manifest says shape"),
        (lambda t: t.update({"layers.0.bias": t["layers.0.bias"][:-1].copy()}), "do not belong together"),
        (lambda t: t.update({"normalization.mean": t["normalization.mean"][:3].copy()}), "differ"),
    ],
    ids=range(13),
)
def test_damaged_tensors_with_a_matching_hash(
    folder: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    change_tensors(folder, change)
    refuse(folder, said)


@draw_examples(400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("kind", ["limited", "image"])
def test_only_policy_errors_escape_a_mutated_manifest(tmp_path: Path, kind: str, data: st.DataObject) -> None:
    folder = tmp_path / "policy"
    save_policy(POLICIES[kind](), folder, {})
    manifest = json.loads((folder / MANIFEST).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        known = [path for path in list_paths(manifest) if path[0] != "sha256"]
        if not known:
            break
        *parents, key = data.draw(st.sampled_from(known))
        place = manifest
        for parent in parents:
            place = place[parent]
        if data.draw(st.booleans()):
            place[key] = data.draw(JSON)
        else:
            del place[key]
    (folder / MANIFEST).write_text(json.dumps(manifest))
    said = "one line"
    try:
        loaded = load_policy(folder)
    except PolicyError as error:
        said = str(error)
    else:  # what loads must also act
        shape = loaded.policy.transform.shape
        loaded.policy.act(np.zeros((1, *shape), np.uint8 if loaded.policy.transform.image else np.float32))
    assert len(said.splitlines()) == 1


@draw_examples(300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=SEEDS, flips=st.integers(1, 8))
def test_only_policy_errors_escape_flipped_bytes(tmp_path: Path, seed: int, flips: int) -> None:
    """In the header of the weights, with a matching hash."""
    folder = tmp_path / "policy"
    save_policy(make_limited_policy(), folder, {})
    data = bytearray((folder / WEIGHTS).read_bytes())
    rng = np.random.default_rng(seed)
    header = 8 + int.from_bytes(data[:8], "little")
    for spot in rng.integers(0, header, flips):
        data[spot] = rng.choice([rng.integers(0, 256), ord("0") + rng.integers(0, 10), data[spot] ^ 1])
    rewrite_weights(folder, bytes(data))
    said = "one line"
    try:
        load_policy(folder)
    except PolicyError as error:
        said = str(error)
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("dtype", ["F8_E4M3", "BF16", "C64", "I8", "BOOL", "F64"])
def test_other_number_formats_are_refused(folder: Path, dtype: str) -> None:
    data = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    width = {"F8_E4M3": 1, "BF16": 2, "C64": 8, "I8": 1, "BOOL": 1, "F64": 8}[dtype]
    start = 0
    for name, entry in sorted((k, v) for k, v in header.items() if k != "__metadata__"):
        count = int(np.prod(entry["shape"]))
        header[name] = {"dtype": dtype, "shape": entry["shape"], "data_offsets": [start, start + count * width]}
        start += count * width
    text = json.dumps(header).encode()
    rewrite_weights(folder, len(text).to_bytes(8, "little") + text + bytes(start))
    refuse(folder, "must be float32|not a safetensors file|ill-formed")


def test_a_committed_policy_loads(baseline) -> None:
    stored = baseline("ppo-cartpole-seed0")
    assert stored.metadata["algo"] == "ppo"
    assert stored.policy.act(np.zeros((3, 4), np.float32)).shape == (3,)
