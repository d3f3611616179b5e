"""Cells as artefacts of a backend: the same returns, and measurements that are kept apart."""

import pytest

from quarl_bench.backends.registry import find_backend
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import DeploymentError
from quarl_bench.evaluation.measurement_key import build_key
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Case
from tests.support.stores import make_policy


@pytest.fixture
def cells(tmp_path):
    save_policy(make_policy(), tmp_path / "baselines" / "policies" / "ppo-cartpole-seed0", {})
    return Cells(Store(StorePaths(tmp_path / "cache", tmp_path / "baselines")), Protocol(1, 4), tmp_path / "artefacts")


def list_kept(tmp_path):
    return len(list((tmp_path / "cache").rglob("*.json")))


@pytest.mark.needs("litert", "cc")
def test_any_backend_plays_a_cell(cells, tmp_path):
    quantized = cells.quantize(cells.find_policies(Case("ppo", "cartpole", "int8")), "int8")
    simulated = cells.measure(quantized)
    kept = list_kept(tmp_path)
    for count, name in enumerate(("litert", "c", "tflite"), 1):
        deployed = cells.deploy(quantized, backend=name)
        assert deployed.policies[0].artefact.backend == find_backend(name).name
        assert cells.measure(deployed).returns == simulated.returns
        assert list_kept(tmp_path) == kept + min(count, 2), "tflite is litert"
    with pytest.raises(DeploymentError, match="unknown backend 'tpu'"):
        cells.deploy(quantized, backend="tpu")


def test_the_key_names_a_backend_that_is_not_the_usual_one():
    def key(**named):
        return build_key(
            "0", find_environment("cartpole"), range(4), scheme=Scheme.parse("int8"), board="local", **named
        )

    assert key() == key(backend="litert")
    assert "backend" not in key()
    assert "ai-edge-litert" in key()["versions"]
    assert key(backend="onnx")["backend"] == "onnx"
    assert "onnxruntime" in key(backend="onnx")["versions"]


def test_the_key_names_the_patience_of_a_game():
    """And of no other task: a protocol shortens nothing else."""
    protocol = Protocol(1, 20, games=4, patience=2500)
    pong, cartpole = map(find_environment, ("pong", "cartpole"))
    assert protocol.shorten(cartpole) == cartpole
    assert Protocol(1, 20).shorten(pong) == pong

    def key(environment):
        return build_key("0", environment, range(4), scheme=Scheme.parse("w8"))

    short = key(protocol.shorten(pong))
    assert short.pop("patience") == 2500
    assert short == key(pong)
