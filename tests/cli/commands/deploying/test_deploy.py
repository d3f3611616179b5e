"""`quarl deploy`, and integers wherever they go."""

import json

import pytest

from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.storage.fp32 import save_policy
from tests.support.balancer import ABOUT
from tests.support.strategies import make_policy


@pytest.mark.needs("litert")
def test_deploy_writes_an_artefact_that_proved_itself(folder, quarl_json):
    result = quarl_json("deploy", "policy", "--scheme", "int8", "--output", "artefact")
    assert result["golden_pairs"] > 0
    assert (folder / "artefact" / "model.tflite").stat().st_size == result["bytes"]


@pytest.mark.parametrize("command", ["prove", "fpga"])
def test_integers_have_their_own_scheme(command, folder, quarl, quarl_json):
    quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
    (folder / "file").touch()
    refused = [
        (("integers", "--scheme", "int2"), "integers: holds integers of int8, which are not quantized again; no --s"),
        (("integers", "--algo", "ppo"), "its manifest says algo itself"),
        (("integers", "--cache", "file/cache"), "cannot write folder file/cache: Not a directory"),
    ]
    if command == "fpga":
        refused += [
            (("integers", "--environment", "acrobot"), "which are not calibrated again; leave --environment out"),
            (("random:ant", "--scheme", "int2", "--algo", "ppo"), "own integers; leave --scheme and --algo out"),
            (("integers", "--output", "cache"), "cache exists and holds no design.json; it is left alone"),
            (("integers", "--output", "file/out"), "cannot write folder file: "),
            (("integers", "--qonnx", "file/x.onnx"), "cannot write folder file: "),
        ]
    (folder / "cache" / "of another").mkdir(parents=True)
    for arguments, message in refused:
        # Where nothing is simulated, nothing stands between the arguments and the design.
        rest = ("--vectors", 0, "--estimate") if command == "fpga" else ()
        code, _, err = quarl(command, *arguments, *rest)
        assert (code, message in err, err.count("\n")) == (2, True, 1), err


@pytest.mark.parametrize("backend", [pytest.param("c", marks=pytest.mark.needs("cc")), "dump"])
def test_integers_deploy_as_they_are(backend, folder, quarl, quarl_json):
    save_policy(make_policy(HeadKind.ARGMAX, normalized=True), folder / "policy", ABOUT)
    made = quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
    result = quarl_json("deploy", "integers", "--backend", backend, "--output", "ours")
    assert (result["scheme"], result["golden_pairs"] > 0) == ("int8", True)
    manifest = json.loads((folder / "ours" / "manifest.json").read_text())
    assert made["sha256"] in json.dumps(manifest)
    for other, message in (
        (("--scheme", "int6"), "which are not quantized again"),
        (("--backend", "tpu"), "unknown backend 'tpu'; known are litert, litert-dynamic, c, onnx, dump"),
    ):
        code, _, err = quarl("deploy", "integers", "--backend", backend, *other, "--output", "other")
        assert (code, message in err) == (2, True)


def test_integers_play_where_they_fit(folder, quarl, quarl_json):
    quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
    for arguments, message in (
        (("evaluate", "integers", "--environment", "mountaincar"), "an agent of (4,) observations cannot play"),
        (("deploy", "integers", "--environment", "acrobot", "--output", "o"), "which gives (6,)"),
        (("evaluate", "integers", "--algo", "sac"), "its manifest says algo itself"),
        (("quantize", "policy", "--output", "policy"), "it is read, and would be lost"),
    ):
        code, _, err = quarl(*arguments)
        assert (code, message in err, err.count("\n")) == (2, True, 1), err
    assert not (folder / "o").exists()


def test_a_missing_compiler_is_said_before_anything_is_played(folder, quarl, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("quarl_bench.evaluation.calibration.quantize_calibrated", lambda *_: pytest.fail("played"))
    code, _, error = quarl("deploy", "policy", "--backend", "c", "--output", "o")
    assert (code, error) == (2, "quarl deploy: c: no C compiler (cc, gcc); install one, or name it in CC\n")


@pytest.mark.parametrize(
    "backend",
    [pytest.param("c", marks=pytest.mark.needs("cc")), pytest.param("onnx", marks=pytest.mark.needs("onnx")), "dump"],
)
def test_deploy_to_other_backends(backend, folder, quarl, quarl_json):
    result = quarl_json("deploy", "policy", "--scheme", "int8", "--backend", backend, "--output", "artefact")
    assert (result["backend"], result["golden_pairs"]) == (backend, 261)
    code, _, error = quarl("deploy", "policy", "--scheme", "fp32", "--backend", "dump", "--output", "float")
    assert code == 2
    assert error.startswith("quarl deploy: dump: it holds integers")
    assert not (folder / "float").exists()


@pytest.mark.needs("litert")
def test_a_backend_by_its_other_name(folder, quarl, quarl_json):
    assert quarl_json("deploy", "policy", "--backend", "tflite", "--output", "artefact")["backend"] == "litert"
    code, _, error = quarl("deploy", "policy", "--backend", "tflit", "--output", "other")
    assert (code, error.count("\n")) == (2, 1)
    assert "unknown backend 'tflit'; did you mean 'tflite'? known are litert, litert-dynamic, c, onnx, dump" in error
