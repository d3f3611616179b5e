"""Recurrent policies as artefacts: the same integers in C and dump as in the golden model, near ties too."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quarl_bench.backends.artefact import STATE, read_artefact
from quarl_bench.backends.base import find_ports
from quarl_bench.backends.c.backend import FLOAT_KERNELS, INTEGER_KERNELS
from quarl_bench.backends.c.microcontroller import count_instructions, measure_flash
from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.export import export_policy
from quarl_bench.backends.registry import find_backend
from quarl_bench.backends.state import count_state, pack_state, unpack_state
from quarl_bench.errors import DeploymentError, PolicyError, QuarlError
from quarl_bench.policies.policy import IntegerPolicy, Visited, require_integer
from quarl_bench.policies.storage.fp32 import hash_policy, load_policy, save_policy
from quarl_bench.policies.storage.integers import load_integers, save_integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.recurrent.cells import CellKind, State
from quarl_bench.quantization.requantize import effective_scale
from quarl_bench.quantization.scheme import Scheme
from tests.support.images import make_parted_memory
from tests.support.sizes import choose, pick_kernels
from tests.support.strategies import make_recurrent, wander

KINDS = list(CellKind)
NEEDS = {"c": ("cc",), "onnx": ("onnx",)}
CANDIDATES = 64  # of a cell state, of which the one nearest to a tie is taken


def quantize(kind: CellKind, scheme: str, **shape: int) -> tuple[IntegerPolicy, Visited]:
    policy = make_recurrent(kind, **shape)
    visited = wander(policy, 100)
    return require_integer(policy.quantize(Scheme.parse(scheme), visited)), visited


def draw_rows(net: IntegerNet, count: int, seed: int) -> tuple[NDArray[np.int64], State]:
    """Integers of the whole range, and states of which every second row's lies next to a tie of what is kept."""
    rng, state = np.random.default_rng(seed), []
    q = rng.integers(net.input.format.minimum, net.input.format.maximum + 1, (count, *net.input_shape))
    for cell in net.cells:
        width = net.layers[cell.place + 1].weight.shape[1]
        state.append(rng.integers(cell.hidden.format.minimum, cell.hidden.format.maximum + 1, (count, width)))
        candidates = rng.integers(-32768, 32768, (CANDIDATES, count, width))
        gates = rng.choice(cell.sigmoid.table, (count, width))
        scale = effective_scale(*map(np.asarray, cell.scales["kept"]))
        products = (gates * candidates).astype(np.float32) * scale
        distance = np.abs(products - np.floor(products) - 0.5)
        distance[1:, 1::2] = np.inf  # rows that are left as they are drawn
        state.append(np.take_along_axis(candidates, distance.argmin(axis=0)[None], axis=0)[0])
    return q, tuple(state)


def run_backend(policy: IntegerPolicy, q: Any, state: State, name: str, kernel: str) -> tuple[Any, State]:
    net = policy.net
    backend, (port, _) = find_backend(name), find_ports(net)
    runner = backend.start(backend.make_files(policy), kernel)
    rows = np.concatenate([q.astype(port.dtype), pack_state(net, state, port.dtype)], axis=1)
    found = runner.run(rows)
    return found[:, : net.outputs].astype(np.int64), unpack_state(net, found[:, net.outputs :])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", choose(["int4"], ["int8pc", "int4"]))
@pytest.mark.parametrize(
    "backend, kernel",
    [
        ("dump", "numpy"),
        *(pytest.param("c", kernel, marks=pytest.mark.needs("cc")) for kernel in pick_kernels(INTEGER_KERNELS)),
        pytest.param("onnx", "cpu", marks=pytest.mark.needs("onnx")),
    ],
)
def test_it_is_the_golden_model_bit_for_bit(kind: CellKind, scheme: str, backend: str, kernel: str) -> None:
    policy = find_backend(backend).renumber(quantize(kind, scheme, inputs=5, width=12, before=7)[0])
    q, state = draw_rows(policy.net, choose(2_000, 100_000), seed=1)
    expected, behind = policy.net.run_step(q, state)
    found, other = run_backend(policy, q, state, backend, kernel)
    assert (found != expected).sum() == 0
    assert [int((one != two).sum()) for one, two in zip(behind, other, strict=True)] == [0, 0]
    assert len(np.unique(behind[1])) > 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "backend, kernel",
    [
        *(pytest.param("c", kernel, marks=pytest.mark.needs("cc")) for kernel in FLOAT_KERNELS),
        pytest.param("onnx", "cpu", marks=pytest.mark.needs("onnx")),
    ],
)
def test_floats_are_those_of_the_net(kind: CellKind, backend: str, kernel: str, tmp_path: Path) -> None:
    policy = make_recurrent(kind, width=12, before=7)
    rounded = policy.quantize(Scheme.parse("w4"))
    visited = wander(policy, 100)
    export_policy(rounded, tmp_path / "made", visited, scheme="w4", source_sha256="0" * 64, backend=backend)
    deployed = load_artefact(tmp_path / "made", kernel)
    assert verify(deployed) == 256
    state, other = rounded.initial_state(1), deployed.initial_state(1)
    for row in visited.observations[:200]:
        expected, state = rounded.act(row[None], state)
        found, other = deployed.act(row[None], other)
        assert (expected == found).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "backend", ["dump", *(pytest.param(name, marks=pytest.mark.needs(*needs)) for name, needs in NEEDS.items())]
)
def test_an_artefact_plays_whole_sequences(kind: CellKind, backend: str, tmp_path: Path) -> None:
    policy, visited = quantize(kind, "int8", width=12)
    export_policy(policy, tmp_path / "made", visited, scheme="int8", source_sha256="0" * 64, backend=backend)
    deployed = load_artefact(tmp_path / "made")
    assert verify(deployed) == 261  # extremes among them
    assert deployed.recurrent
    state, other = policy.initial_state(4), deployed.initial_state(4)
    for begin in range(0, len(visited), 4):
        x = visited.observations[begin : begin + 4]
        expected, state = policy.act(x, state)
        found, other = deployed.act(x, other)
        assert (expected == found).all()
    with pytest.raises(PolicyError, match="not that of its fp32"):
        deployed.outputs(visited)
    with pytest.raises(PolicyError, match="recurrent"):
        deployed.act(visited.observations)


@pytest.mark.needs("onnx")
def test_states_of_the_integers_themselves_are_renumbered_with_them(tmp_path: Path) -> None:
    policy, visited = quantize(CellKind.LSTM, "int8", width=12)
    own = Visited(visited.observations, policy.net.adopt(visited.state))
    assert all(part.dtype.kind == "i" for part in own.state)
    arguments = {"scheme": "int8", "source_sha256": "0" * 64, "backend": "onnx"}
    first, second = (
        export_policy(policy, tmp_path / name, seen, **arguments) for name, seen in (("a", visited), ("b", own))
    )
    assert (first.artefact.golden.inputs == second.artefact.golden.inputs).all()


def test_a_golden_state_that_was_changed_is_found(tmp_path: Path) -> None:
    policy, visited = quantize(CellKind.LSTM, "int8")
    export_policy(policy, tmp_path / "made", visited, scheme="int8", source_sha256="0" * 64, backend="dump")
    artefact = read_artefact(tmp_path / "made")
    assert artefact.initial_state is not None
    assert len(artefact.initial_state) == count_state(policy.net) == 8 + 2 * 8
    assert STATE == "initial_state"
    deployed = load_artefact(tmp_path / "made")
    artefact.golden.outputs[3, -1] ^= 1
    with pytest.raises(DeploymentError, match="output"):
        verify(type(deployed)(deployed.transform, deployed.net, deployed.head, artefact))


@pytest.mark.needs("cc", "make")
@pytest.mark.parametrize("scheme", ["int8", "w8"])
def test_make_test_runs_its_golden_pairs(scheme: str, tmp_path: Path) -> None:
    policy = make_recurrent(CellKind.LSTM)
    visited = wander(policy, 50)
    quantized = policy.quantize(Scheme.parse(scheme), visited)
    export_policy(quantized, tmp_path / "c", visited, scheme=scheme, source_sha256="0" * 64, backend="c")
    done = subprocess.run(["make", "-s", "test"], cwd=tmp_path / "c", capture_output=True, text=True, check=True)
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["different"] for report in reports if scheme == "int8"] == [0] * (4 if scheme == "int8" else 0)
    assert all(report["pairs"] >= 200 for report in reports)


@pytest.mark.needs("cc")
def test_policy_act_keeps_its_state_between_calls_and_forgets_it_on_demand(tmp_path: Path) -> None:
    policy, visited = quantize(CellKind.GRU, "int8")
    export_policy(policy, tmp_path / "c", visited, scheme="int8", source_sha256="0" * 64, backend="c")
    rows = visited.observations[:40:4]
    numbers = ", ".join(f"{float(value)!r}f" for value in rows.ravel())
    (tmp_path / "c" / "main.c").write_text(
        '#include <stdio.h>\n#include "observe.h"\n'
        f"static const float rows[] = {{{numbers}}};\n"
        "int main(void) {\n  for (int again = 0; again < 2; again++) {\n    policy_forget();\n"
        f'    for (int i = 0; i < {len(rows)}; i++)\n      printf("%d\\n", policy_act(rows + 4 * i));\n  }}\n}}\n'
    )
    command = ["cc", "-std=c99", "-o", "main", "main.c", "policy.c", "observe.c", "-lm"]
    subprocess.run(command, cwd=tmp_path / "c", check=True)
    said = subprocess.run(["./main"], cwd=tmp_path / "c", capture_output=True, text=True, check=True).stdout.split()
    state, expected = policy.initial_state(1), []
    for row in rows:
        action, state = policy.act(row[None], state)
        expected.append(str(int(action[0])))
    assert said == expected * 2
    assert len(set(expected)) == 2


@pytest.mark.needs("cc", "make", "arm-none-eabi-gcc", "qemu-system-arm")
@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_on_an_emulated_microcontroller(kind: CellKind, tmp_path: Path) -> None:
    policy, visited = quantize(kind, "int8")
    export_policy(policy, tmp_path / "c", visited, scheme="int8", source_sha256="0" * 64, backend="c")
    assert count_instructions(tmp_path / "c", 3) > 1000  # the pair is compared there
    assert 4_000 < measure_flash(tmp_path / "c") < 20_000


@pytest.mark.parametrize("backend", ["litert", "litert-dynamic"])
@pytest.mark.parametrize("scheme", ["fp32", "int8"])
def test_backends_without_ports_for_a_state_say_so(backend: str, scheme: str) -> None:
    policy = make_recurrent(CellKind.LSTM)
    quantized = policy if scheme == "fp32" else quantize(CellKind.LSTM, scheme)[0]
    message = f"{backend}: a recurrent policy has a state.*use c, onnx or dump"
    with pytest.raises(DeploymentError, match=message) as caught:
        find_backend(backend).make_files(quantized)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "backend, kernel",
    [
        ("dump", "numpy"),
        *(pytest.param("c", kernel, marks=pytest.mark.needs("cc")) for kernel in pick_kernels(INTEGER_KERNELS)),
        pytest.param("onnx", "cpu", marks=pytest.mark.needs("onnx")),
    ],
)
def test_a_memory_behind_images_among_vectors(kind: CellKind, backend: str, kernel: str, tmp_path: Path) -> None:
    policy = make_parted_memory(kind)
    visited = wander(policy, 50)
    integers = require_integer(policy.quantize(Scheme.parse("int8"), visited))
    save_integers(integers, tmp_path / "int8", {})
    numbered = find_backend(backend).renumber(load_integers(tmp_path / "int8").policy)
    q, state = draw_rows(numbered.net, choose(500, 100_000), seed=4)
    expected, behind = numbered.net.run_step(q, state)
    found, other = run_backend(numbered, q, state, backend, kernel)
    assert (found != expected).sum() == 0
    assert [int((one != two).sum()) for one, two in zip(behind, other, strict=True)] == [0, 0]
    off = np.abs(integers.outputs(visited) - policy.outputs(visited)).max()
    assert off < 0.1 * np.abs(policy.outputs(visited)).max()
    if backend != "dump" and kernel == find_backend(backend).kernels[0]:
        export_policy(integers, tmp_path / "a", visited, scheme="int8", source_sha256="0" * 64, backend=backend)
        assert verify(load_artefact(tmp_path / "a")) > 100
        export_policy(policy, tmp_path / "b", visited, scheme="fp32", source_sha256="0" * 64, backend=backend)


@pytest.mark.parametrize("kind", KINDS)
def test_folders_keep_them(kind: CellKind, tmp_path: Path) -> None:
    policy = make_recurrent(kind, before=3)
    save_policy(policy, tmp_path / "fp32", {})
    again = load_policy(tmp_path / "fp32").policy
    assert hash_policy(again) == hash_policy(policy)
    assert again.net.cells == policy.net.cells
    integers = require_integer(policy.quantize(Scheme.parse("int6"), wander(policy, 30)))
    save_integers(integers, tmp_path / "int6", {})
    loaded = load_integers(tmp_path / "int6").policy
    assert loaded.net.cells == integers.net.cells
    q, state = draw_rows(integers.net, 50, seed=3)
    assert (loaded.net.run_step(q, state)[0] == integers.net.run_step(q, state)[0]).all()


CHANGES: dict[str, tuple[Any, str]] = {
    "kind": ("rnn", "ill-formed"),
    "place": (7, "two layers|ill-formed"),
    "squash": (None, "has a tanh of its state"),
    "sums": ({"bit_width": 8, "signed": True, "narrow_range": False, "scale": 1.0, "zero_point": 0}, "ill-formed"),
    "sigmoid": ({"activation": "relu"}, "ill-formed"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_cells_that_no_quantizer_writes_are_refused(name: str, tmp_path: Path) -> None:
    policy, _ = quantize(CellKind.LSTM, "int8")
    save_integers(policy, tmp_path / "made", {})
    manifest = json.loads((tmp_path / "made" / "manifest.json").read_text())
    value, message = CHANGES[name]
    manifest["architecture"]["cells"][0][name] = value
    (tmp_path / "made" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(QuarlError, match=message) as caught:
        load_integers(tmp_path / "made")
    assert "\n" not in str(caught.value)
