"""One policy, one hash: every backend plays the same actions, and one that does not is caught at its first."""

import json
import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.cli import main
from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import BoardError, SpecError
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.experiments.environment_source import resolve_environment
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.prove import executors
from quarl_bench.prove.aware import AwareNet
from quarl_bench.prove.executors import HARDWARE, Execution, ProofSubject, open_golden
from quarl_bench.prove.proof import RecordedEpisodes, prove
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from tests.support.layers import forward_layer
from tests.support.places import POLICIES
from tests.support.sizes import EXHAUSTIVE, choose
from tests.support.strategies import convolutions, inputs_of, perceptrons

CARTPOLE = find_environment("cartpole")
ON_HOST = ["integer", "qat", "litert", "onnx", "c"]
EMULATORS = {
    "c-arm": ("aarch64-linux-gnu-gcc", "qemu-aarch64-static", "make"),
    "c-cortex-m4": ("arm-none-eabi-gcc", "qemu-system-arm", "make"),
    "rtl": ("verilator",),
}


def open_subject(name: str, cache: Path) -> ProofSubject:
    if not (POLICIES / name).is_dir():
        pytest.skip(f"no baseline {name} in {POLICIES}")
    kept = load_integers(POLICIES / name)
    states = collect_observations(kept.policy, CARTPOLE, 64, 0)
    return ProofSubject(kept.policy, kept.metadata["recipe"]["scheme"], kept.sha256, states, cache)


def list_present() -> list[str]:
    """What this machine can run of the emulators."""
    return [name for name, tools in EMULATORS.items() if all(map(shutil.which, tools))]


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.needs("cc")
@pytest.mark.parametrize("bits", choose([2], [8, 2]))
def test_all_hashes_are_equal(bits: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"ppo-cartpole-qat{bits}-seed0"
    if not (POLICIES / name).is_dir():
        pytest.skip(f"no baseline {name} in {POLICIES}")
    pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install 'quarl_bench[litert]'")
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'quarl_bench[onnx]'")
    emulated = [backend for backend in list_present() if backend != "rtl" or (EXHAUSTIVE and "qat2" in name)]
    arguments = ["prove", name, "--episodes", "1", "--cache", str(tmp_path), "--json"]
    named = ["--backends", ",".join([*ON_HOST, *emulated])]
    assert main([*arguments, *named]) == (2 if "qat2" in name else 0)  # litert's kernels have no 2-bit activations
    result = json.loads(capsys.readouterr().out)
    rows = {row["executor"]: row for row in result["rows"]}
    refused = {"litert"} if "qat2" in name else set()
    assert {backend for backend, row in rows.items() if row["reason"]} == refused
    assert result["equal"]
    ran = [row for row in rows.values() if not row["reason"]]
    assert len({row["sha256"] for row in ran}) == 1
    assert len({row["mean"] for row in ran}) == 1
    assert all(row["bytes"] > 0 and row["cost"]["value"] > 0 for row in ran)
    sources = {"c-arm": "emulated", "c-cortex-m4": "emulated", "rtl": "simulated"}
    assert all(row["cost"]["source"] == sources.get(row["executor"], "measured") for row in ran)


def test_floats_are_refused_and_unknown_backends_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["ppo-cartpole-seed0", "--scheme", "w8"], "only integers can be equal everywhere"),
        (["ppo-cartpole-seed0", "--backends", "tpu"], "known are integer, qat"),
    ):
        assert main(["prove", *arguments]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1


# --- divergence and absence ------------------------------------------------------------------------------------------


def test_a_changed_weight_is_found_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subject = open_subject("ppo-cartpole-qat8-seed0", tmp_path)
    layers = subject.policy.net.layers
    bias = layers[1].bias.copy()
    bias[5] += 100_000
    net = replace(subject.policy.net, layers=(layers[0], replace(layers[1], bias=bias), layers[2]))
    wrong = replace(subject.policy, net=net)

    def open_wrong(subject: ProofSubject, stack: ExitStack) -> Execution:
        def locate(q: np.ndarray) -> str | None:
            return executors._compare(subject.policy, q, net.trace(q))

        return replace(open_golden(subject, stack), policy=wrong, locate=locate)

    monkeypatch.setitem(HARDWARE, "c", open_wrong)
    golden, row = prove(subject, CARTPOLE, range(2), ["c"])
    assert row.sha256 != golden.sha256
    assert "layer 1, element (5,): expected" in row.divergence


def test_the_sign_of_zero_is_no_other_action() -> None:
    states = np.zeros((2, 1), np.float32)
    golden, other, less = (
        RecordedEpisodes([(states, np.array(actions, np.float32))], np.zeros(1))
        for actions in ([0, 1], [-0.0, 1], [0, 2])
    )
    assert golden.sha256 == other.sha256 != less.sha256


@pytest.mark.needs("cc")  # which is asked for before a microcontroller's compiler
def test_what_is_not_here_is_a_row_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    subject = open_subject("ppo-cartpole-qat8-seed0", tmp_path)
    which, absent = shutil.which, ("arm-none-eabi-gcc", "verilator")
    monkeypatch.setattr("shutil.which", lambda name: None if name in absent else which(name))
    rows = list(prove(replace(subject, scheme="int8"), CARTPOLE, range(1), ["qat", "c-cortex-m4", "rtl"]))
    assert [bool(row.reason) for row in rows] == [False, True, True, True]
    reasons = [row.reason for row in rows[1:]]
    assert "not of quantization-aware training" in reasons[0]
    assert "apt-get install gcc-arm-none-eabi" in reasons[1]
    assert "verilator is not installed" in reasons[2]


def test_an_environment_without_a_seed_is_named(tmp_path: Path) -> None:
    """And not the backend that played second."""
    noise = np.random.default_rng()

    class Noisy(CartPoleEnv):
        max_episode_steps = 20

        def step(self, action: Any) -> Any:
            observation, *rest = super().step(action)
            return (observation + noise.normal(scale=1e-3, size=4).astype(np.float32), *rest)

    subject = open_subject("ppo-cartpole-qat8-seed0", tmp_path)
    with pytest.raises(SpecError, match="the environment gives other states after equal actions; seed all of it"):
        list(prove(subject, resolve_environment(Noisy), range(2), ["integer", "qat"]))


@pytest.mark.needs(*EMULATORS["c-arm"])
def test_a_server_that_dies_is_one_line(tmp_path: Path) -> None:
    subject = open_subject("ppo-cartpole-qat8-seed0", tmp_path)
    with ExitStack() as stack:
        execution = executors.open_arm(subject, stack)
        execution.policy.act(subject.states[:2])
        execution.policy.net.runner._process.kill()
        with pytest.raises(BoardError, match=r"ended with exit code"):
            execution.policy.act(subject.states[:2])


# --- the forward of training -----------------------------------------------------------------------------------------


@given(st.one_of(perceptrons(), convolutions()), st.sampled_from(["int8", "int4", "int2"]), st.integers(0, 9))
def test_the_rebuilt_forward_is_the_fake_quantized_one(net, scheme: str, seed: int) -> None:
    quantized = quantize_net(net, Scheme.parse(scheme), inputs_of(net, 100, seed=seed))
    assert isinstance(quantized, QuantizedNet)
    aware = AwareNet(IntegerNet.from_quantized(quantized), Scheme.parse(f"qat{scheme[3:]}"))
    x = inputs_of(net, 20, seed=seed + 1)
    q = quantized.input.quantize(x)
    first = aware.trace(q)[0]
    assert np.abs(first - forward_layer(quantized, 0, q)).max() <= 1  # sums in another order
    np.testing.assert_array_equal(quantized.formats[-1].quantize(aware.forward(x)), aware.trace(q)[-1])
