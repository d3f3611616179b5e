"""An artefact runs alone, acts as its policy, and is refused when anything in it is not what was exported."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from quarl_bench.backends.artefact import PAIR, Golden, read_artefact, write_artefact
from quarl_bench.backends.deployed import DeployedPolicy, load_artefact, verify
from quarl_bench.backends.export import export_policy, make_golden
from quarl_bench.backends.files import GOLDEN, MANIFEST
from quarl_bench.backends.litert.flatbuffer import write_integer_net
from quarl_bench.backends.litert.runtime import Kernel, runtime_version
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import DeploymentError, PolicyError, StoreError
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.evaluation.protocol import TEST_SEEDS
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import Policy, PolicyNet, QuantizedPolicy, deployable, require_integer
from quarl_bench.policies.storage.fp32 import StoredPolicy, load_policy, save_policy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.archives import edit_manifest
from tests.support.strategies import make_policy, normal

pytestmark = pytest.mark.needs("litert")

MODEL = "model.tflite"
SHA256 = "0" * 64


def observe(count: int = 300, seed: int = 0) -> np.ndarray[Any, Any]:
    return normal(np.random.default_rng(seed), count, 4, spread=2.0)


def quantize(scheme: str, *, policy: PolicyNet | None = None) -> Policy:
    return deployable((policy or make_policy()).quantize(Scheme.parse(scheme), observe()))


def export(folder: Path, scheme: str = "int8", *, policy: PolicyNet | None = None) -> DeployedPolicy:
    return export_policy(quantize(scheme, policy=policy), folder, observe(), scheme=scheme, source_sha256=SHA256)


def make_image_policy() -> PolicyNet:
    rng = np.random.default_rng(3)
    layers = (
        Conv2d(normal(rng, 6, 2, 3, 3, spread=0.3), normal(rng, 6), 2, Activation.RELU),
        Linear(normal(rng, 3, 6 * 4 * 3, spread=0.2), normal(rng, 3)),
    )
    return PolicyNet(ObservationTransform((2, 9, 7), image=True), Net((2, 9, 7), layers), ActionHead(HeadKind.ARGMAX))


def refuse(folder: Path, match: str) -> None:
    with pytest.raises(DeploymentError, match=match) as caught:
        load_artefact(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


# --- what an artefact is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HeadKind)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("scheme", ["fp32", "fp16", "w4", "int8", "int8pow2"])
def test_an_artefact_acts_as_its_policy(scheme: str, normalized: bool, kind: HeadKind, tmp_path: Path) -> None:
    portable = make_policy(kind, normalized=normalized)
    policy = quantize(scheme, policy=portable)
    export(tmp_path / "a", scheme, policy=portable)
    (tmp_path / "a").rename(tmp_path / "moved")
    deployed = load_artefact(tmp_path / "moved")
    assert verify(deployed) == len(deployed.artefact.golden.actions) >= 256
    observations = observe(1000, seed=1)
    if scheme.startswith("int"):
        np.testing.assert_array_equal(deployed.outputs(observations), policy.outputs(observations))
        np.testing.assert_array_equal(deployed.act(observations), policy.act(observations))
    else:
        np.testing.assert_allclose(deployed.outputs(observations), policy.outputs(observations), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(deployed.act(observations), policy.act(observations), rtol=1e-4, atol=1e-4)
    assert deployed.act(observations).dtype == policy.act(observations).dtype
    with pytest.raises(PolicyError, match="observations of shape"):
        deployed.act(np.zeros((2, 5), np.float32))


@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_image_artefacts_act_as_their_policy(scheme: str, tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 2, 9, 7), dtype=np.uint8)
    policy = deployable(make_image_policy().quantize(Scheme.parse(scheme), images))
    export_policy(policy, tmp_path / "a", images, scheme=scheme, source_sha256=SHA256)
    deployed = load_artefact(tmp_path / "a")
    verify(deployed)
    for batch in (images, images.transpose(0, 2, 3, 1)):
        np.testing.assert_allclose(deployed.outputs(batch), policy.outputs(batch), atol=1e-5 * (scheme == "fp32"))
        np.testing.assert_array_equal(deployed.act(batch), policy.act(batch))
    if scheme == "int8":
        q = deployed.net.input.quantize(policy.transform.apply(images))
        np.testing.assert_array_equal(deployed.net.run(q), policy.net.run(q))


def test_episodes_are_those_of_the_golden_model(baseline: Callable[[str], StoredPolicy], tmp_path: Path) -> None:
    stored, environment = baseline("ppo-cartpole-seed0"), find_environment("cartpole")
    observations = collect_observations(stored.policy, environment, 2000, 30_000)
    policy = require_integer(stored.policy.quantize(Scheme.parse("int8"), observations))
    deployed = export_policy(policy, tmp_path / "a", observations, scheme="int8", source_sha256=stored.sha256)
    seeds = range(TEST_SEEDS, TEST_SEEDS + 100)
    ours = roll_out(deployed, environment, seeds, reference=policy, keep_every=1)
    golden = roll_out(policy, environment, seeds, reference=deployed, keep_every=1)
    assert ours.agreement == golden.agreement == 1.0
    np.testing.assert_array_equal(ours.returns, golden.returns)
    np.testing.assert_array_equal(ours.observations, golden.observations)


def test_the_manifest_says_what_is_in_the_folder(tmp_path: Path) -> None:
    export(tmp_path / "int", "int8")
    export(tmp_path / "float", "w4")
    integer, floating = (json.loads((tmp_path / name / MANIFEST).read_text()) for name in ("int", "float"))
    policy = require_integer(make_policy().quantize(Scheme.parse("int8"), observe()))
    assert (integer["schema_version"], integer["backend"], integer["scheme"]) == (1, "litert", "int8")
    assert integer["source_sha256"] == SHA256
    assert integer["parameters"] == 4 * 8 + 8 + 8 * 2 + 2
    assert integer["model"]["bytes"] == (tmp_path / "int" / MODEL).stat().st_size
    assert integer["model"]["weight_types"] == ["INT8", "INT8"]
    assert np.float32(integer["input"]["scale"]) == policy.net.input.scale
    assert integer["output"]["zero_point"] == policy.net.output.zero_point
    assert integer["runtime"]["version"] == runtime_version()
    assert integer["runtime"]["kernel"] == "xnnpack"
    assert floating["model"]["weight_types"] == ["FLOAT32", "FLOAT32"]
    assert floating["arithmetic"] == "float32, with the weights that w4 leaves"
    assert floating["input"] == {"shape": [4], "dtype": "float32"}


def test_golden_pairs_are_the_golden_model_and_its_extremes(tmp_path: Path) -> None:
    policy = require_integer(make_policy().quantize(Scheme.parse("int8"), observe()))
    golden = export(tmp_path / "a").artefact.golden
    stored = load_file(tmp_path / "a" / GOLDEN)
    q = policy.net.input.quantize(policy.transform.apply(stored["observations"]))
    np.testing.assert_array_equal(stored["inputs"], q)
    np.testing.assert_array_equal(stored["outputs"], policy.net.run(q))
    np.testing.assert_array_equal(stored["actions"], policy.act(stored["observations"]))
    assert stored["inputs"].dtype == stored["outputs"].dtype == np.int8
    assert np.isposinf(golden.observations).any()
    assert (golden.observations == np.float32(-1e30)).any()


def test_kernels_are_selectable_and_told_apart(tmp_path: Path) -> None:
    policy = make_policy()
    export(tmp_path / "a", "int8pow2", policy=policy)
    export(tmp_path / "b", "fp32", policy=policy)
    for kernel in Kernel:
        assert load_artefact(tmp_path / "a", kernel=kernel).net.runner.kernel is kernel
        verify(load_artefact(tmp_path / "b", kernel=kernel))
    reference = load_artefact(tmp_path / "a", kernel="reference")
    with pytest.raises(DeploymentError, match=r"reference kernel, output \d of golden pair \d+: expected -?\d+, got"):
        verify(reference)
    with pytest.raises(DeploymentError, match="unknown kernel 'gpu'"):
        load_artefact(tmp_path / "a", kernel="gpu")


# --- what is no artefact ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [MODEL, GOLDEN])
def test_truncated_files_are_refused(name: str, tmp_path: Path) -> None:
    export(tmp_path / "a")
    data = (tmp_path / "a" / name).read_bytes()
    for length in (0, 10, len(data) // 2, len(data) - 1):
        (tmp_path / "a" / name).write_bytes(data[:length])
        refuse(tmp_path / "a", f"{name}: its sha256 is not the manifest's")


@pytest.mark.parametrize("name", [MODEL, GOLDEN, MANIFEST])
def test_exchanged_files_are_refused(name: str, tmp_path: Path) -> None:
    export(tmp_path / "a")
    export(tmp_path / "b", "int8pow2")
    shutil.copy(tmp_path / "b" / name, tmp_path / "a" / name)
    refuse(tmp_path / "a", "its sha256 is not the manifest's")


@pytest.mark.parametrize("name", [MODEL, GOLDEN, MANIFEST])
def test_missing_files_are_refused(name: str, tmp_path: Path) -> None:
    export(tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    refuse(tmp_path / "a", f"{name}: No such file")


def test_other_folders_are_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "absent", "No such file")
    save_policy(make_policy(), tmp_path / "policy", {})
    refuse(tmp_path / "policy", "a policy, no artefact; `quarl deploy` makes one")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema_version": 2}'])
def test_manifests_that_are_none_are_refused(text: str, tmp_path: Path) -> None:
    export(tmp_path / "a")
    (tmp_path / "a" / MANIFEST).write_text(text)
    refuse(tmp_path / "a", "not JSON|schema_version")


def test_manifests_without_a_key_are_refused(tmp_path: Path) -> None:
    export(tmp_path / "a")
    for key in json.loads((tmp_path / "a" / MANIFEST).read_text()):
        if key != "arithmetic":  # the one that only a reader needs
            shutil.copytree(tmp_path / "a", tmp_path / key)
            edit_manifest(tmp_path / key, lambda manifest, key=key: manifest.pop(key))
            refuse(tmp_path / key, "ill-formed|schema_version")


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("backend", "tpu", "unknown backend 'tpu'; known are litert"),
        ("input.scale", 0.5, "the model's input is int8 of scale"),
        ("input.scale", -1.0, "ill-formed"),
        ("input.zero_point", 99, "the model's input is int8"),
        ("input.dtype", "float32", "the model's input is int8"),
        ("output.scale", "wide", "ill-formed"),
        ("output.zero_point", 99, "the model's output is int8"),
        ("observation.shape", [3], r"a net of input \(4,\) for observations of \(3,\)"),
        ("head.kind", "dice", "ill-formed"),
        ("head.kind", "tanh", "ill-formed"),
        ("runtime.kernel", "fast", "unknown kernel 'fast'"),
        ("runtime.speed", 3, "ill-formed"),
    ],
)
def test_manifests_that_contradict_the_model_are_refused(path: str, value: Any, match: str, tmp_path: Path) -> None:
    export(tmp_path / "a")

    def change(manifest: dict[str, Any]) -> None:
        *parents, key = path.split(".")
        for parent in parents:
            manifest = manifest[parent]
        manifest[key] = value

    edit_manifest(tmp_path / "a", change)
    refuse(tmp_path / "a", match)


def test_a_golden_pair_that_differs_is_named(tmp_path: Path) -> None:
    deployed = export(tmp_path / "a")
    for name, index, match in (
        ("inputs", (7, 2), "xnnpack kernel, input 2 of golden pair 7: expected"),
        ("outputs", (11, 1), "xnnpack kernel, output 1 of golden pair 11: expected"),
        ("actions", (13,), "xnnpack kernel, action of golden pair 13: expected"),
    ):
        pairs = load_file(tmp_path / "a" / GOLDEN)
        pairs[name][index] = 1 - pairs[name][index] if name == "actions" else pairs[name][index] ^ 1
        golden = Golden(*(pairs[key] for key in PAIR))
        write_artefact(replace(deployed.artefact, golden=golden), tmp_path / "forged")
        with pytest.raises(DeploymentError, match=match) as caught:
            verify(load_artefact(tmp_path / "forged"))
        assert "1 of" in str(caught.value)


def test_a_golden_file_without_pairs_is_refused(tmp_path: Path) -> None:
    export(tmp_path / "a")
    golden = save({"actions": np.zeros(3)})
    (tmp_path / "a" / GOLDEN).write_bytes(golden)
    edit_manifest(tmp_path / "a", lambda m: m["golden"].update(sha256=hashlib.sha256(golden).hexdigest()))
    refuse(tmp_path / "a", "ill-formed")


# --- what is not exported --------------------------------------------------------------------------------------------


def test_nothing_stays_behind_a_failed_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a"
    with pytest.raises(DeploymentError, match="8-bit signed activations"):
        export(target, "int4")
    with pytest.raises(DeploymentError, match="no observations"):
        export_policy(quantize("int8"), target, observe(0), scheme="int8", source_sha256=SHA256)
    with pytest.raises(PolicyError):
        export_policy(quantize("int8"), target, np.zeros((3, 5)), scheme="int8", source_sha256=SHA256)
    assert list(tmp_path.iterdir()) == []

    export(target)
    before = {file.name: file.read_bytes() for file in target.iterdir()}
    monkeypatch.setattr(Path, "write_text", fail_to_write)
    with pytest.raises(StoreError, match="No space left on device; choose a writable place"):
        export(target, "int8pow2")
    assert {file.name: file.read_bytes() for file in target.iterdir()} == before
    assert list(tmp_path.iterdir()) == [target]


def fail_to_write(*_: object, **__: object) -> int:
    raise OSError(28, "No space left on device")


def test_an_artefact_is_replaced_whole_and_nothing_else_is(tmp_path: Path) -> None:
    export(tmp_path / "a")
    export(tmp_path / "a", "fp32")
    assert read_artefact(tmp_path / "a").scheme == "fp32"
    (tmp_path / "empty").mkdir()
    export(tmp_path / "empty")
    save_policy(make_policy(), tmp_path / "policy", {})
    (tmp_path / "file").write_text("mine")
    for name in ("policy", "file"):
        with pytest.raises(StoreError, match="it is left alone"):
            export(tmp_path / name)
    assert load_policy(tmp_path / "policy").sha256
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(StoreError, match="cannot write folder"):
        export(tmp_path / "file" / "below")


def test_a_model_that_is_not_the_policy_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = require_integer(make_policy(seed=5).quantize(Scheme.parse("int8"), observe()))
    policy = require_integer(make_policy().quantize(Scheme.parse("int8"), observe()))
    assert other.net.input == policy.net.input
    genuine = make_golden(policy, observe())

    def wrong(*_: object) -> Any:
        forged = genuine.outputs.copy()
        forged[4, 1] ^= 1
        return replace(genuine, outputs=forged)

    monkeypatch.setattr("quarl_bench.backends.export.make_golden", wrong)
    with pytest.raises(DeploymentError, match="litert: xnnpack kernel, output 1 of golden pair 4: expected"):
        export_policy(policy, tmp_path / "a", observe(), scheme="int8", source_sha256=SHA256)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("scheme", "name", "match"),
    [
        ("fp32", "int8", "promises integers, the policy computes in float32"),
        ("int8", "w8", "promises float32, the policy computes in integers"),
        ("int8", "Int 8", "no id part"),
    ],
)
def test_a_false_name_is_refused(scheme: str, name: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=match):
        export_policy(quantize(scheme), tmp_path / "a", observe(), scheme=name, source_sha256=SHA256)


def test_other_requantizations_are_refused(tmp_path: Path) -> None:
    quantized = make_policy().quantize(Scheme.parse("int8"), observe())
    assert isinstance(quantized, QuantizedPolicy)
    export_policy(
        quantized.to_integer(Requantization.THRESHOLDS), tmp_path / "a", observe(), scheme="int8", source_sha256=SHA256
    )
    with pytest.raises(DeploymentError, match="requantizes as fp32_rne or thresholds, not as half_away"):
        export_policy(
            quantized.to_integer(Requantization.HALF_AWAY),
            tmp_path / "b",
            observe(),
            scheme="int8",
            source_sha256=SHA256,
        )


def test_float_artefacts_refuse_what_kernels_disagree_about(tmp_path: Path) -> None:
    deployed = export(tmp_path / "a", "fp32")
    for value in (np.nan, np.inf):
        with pytest.raises(DeploymentError, match="NaN or infinity"):
            deployed.act(np.full((2, 4), value, np.float32))


def test_equal_policies_give_equal_files() -> None:
    nets = [require_integer(make_policy().quantize(Scheme.parse("int8"), observe())).net for _ in range(2)]
    assert write_integer_net(nets[0]) == write_integer_net(nets[1])
