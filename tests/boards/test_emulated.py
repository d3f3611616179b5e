"""A Raspberry Pi in qemu-user: the same integers, counted instructions, no time."""

import json
import os
import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from quarl_bench.backends.artefact import read_artefact, write_artefact
from quarl_bench.backends.files import GOLDEN
from quarl_bench.boards.board import THIS_MACHINE, Board
from quarl_bench.boards.emulated import COMPILER, SECONDS, _emulate, build_harness, count_instructions
from quarl_bench.boards.session import open_session
from quarl_bench.boards.transport import QEMU
from quarl_bench.errors import BoardError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.artefacts import WIDTHS, export_pair
from tests.support.sizes import choose
from tests.support.strategies import inputs_of, make_net

pytestmark = pytest.mark.needs("litert")

ROOTFS = os.environ.get("QUARL_ROOTFS", "")  # made by hw/raspi/make_rootfs.sh
OLD = "tflite-runtime"
PI3 = Board("pi3", "emulated", rootfs=ROOTFS, cpu="cortex-a53")
ON_ROOTFS = pytest.mark.skipif(not ROOTFS, reason="needs QUARL_ROOTFS, a folder of hw/raspi/make_rootfs.sh")
CROSS = pytest.mark.needs(COMPILER, QEMU)


def run_harness(board, artefact):
    """The golden pairs of a C artefact, run again: how many, with how many outputs, of which how many differ."""
    with build_harness(board, artefact) as harness:
        command = [*_emulate(board, harness), str(artefact / GOLDEN), "0"]
        return json.loads(subprocess.run(command, capture_output=True, timeout=SECONDS, check=False).stdout)


def use_old_kernels(artefact: Path, folder: Path) -> Path:
    """The int8 artefact of `export_pair` with the golden outputs that the old kernels' double rounding gives."""
    net = make_net(*WIDTHS)
    policy = PolicyNet(ObservationTransform(net.input_shape), net, ActionHead(HeadKind.ARGMAX))
    integers = require_integer(policy.quantize(Scheme.parse("int8"), inputs_of(net, 300)))
    old = integers.net.with_requantization(Requantization.DOUBLE_HALF_UP)
    whole = read_artefact(artefact)
    outputs = old.run(whole.golden.inputs.astype(np.int64)).astype(np.int8)
    assert (outputs != whole.golden.outputs).any(), "the two roundings agree on all pairs: this proves nothing"
    write_artefact(replace(whole, golden=replace(whole.golden, outputs=outputs)), folder)
    return folder


def check_old_runtime(board, tmp_path):
    """tflite-runtime equals its own named mode, and says by how much it differs from the default one."""
    fp32, int8 = export_pair(tmp_path / "artefacts")
    with open_session(board) as session:
        assert session.check(fp32).first is None
        default, own = session.check(int8), session.check(use_old_kernels(int8, tmp_path / "old"))
    assert (own.runtime, own.kernel) == (f"{OLD} 2.14.0", "builtin")
    assert own.first is None, str(own)
    assert own.output_sha256 == own.golden_sha256 == default.output_sha256
    assert 0 < default.wrong < default.elements / 2
    assert default.largest <= 2
    print(default)  # noqa: T201  (seen with -rP)


def test_tflite_runtime_equals_its_named_mode_on_this_machine(tmp_path):
    python = os.environ.get("QUARL_PYTHON", "")
    if not (python or find_spec("tflite_runtime")):
        pytest.skip(
            "needs tflite-runtime (pip install 'quarl_bench[tflite-runtime]'), or QUARL_PYTHON=python that has it"
        )
    board = replace(THIS_MACHINE, folder=str(tmp_path), runtime=OLD, python=python or THIS_MACHINE.python)
    check_old_runtime(board, tmp_path)


@ON_ROOTFS
def test_an_emulated_pi_computes_the_same_integers(tmp_path):
    board = replace(PI3, folder=str(tmp_path / "board"), architecture="aarch64")
    (tmp_path / "board").mkdir()
    check_old_runtime(board, tmp_path)
    assert list((tmp_path / "board").iterdir()) == []


@CROSS
@pytest.mark.parametrize("cpu", choose(["cortex-a53"], ["cortex-a53", "cortex-a76"]))
def test_cross_compiled_c_gives_the_golden_outputs(tmp_path, cpu):
    board = replace(PI3, cpu=cpu)
    fp32, int8 = export_pair(tmp_path, backend="c")
    exact, close = run_harness(board, int8), run_harness(board, fp32)
    assert (exact["different"], exact["outputs"]) == (0, 4 * exact["pairs"])
    assert close["pairs"] > 0
    print(f"{cpu}: {count_instructions(board, fp32)} -> {count_instructions(board, int8)} instructions")  # noqa: T201  (-rP)


@CROSS
def test_a_harness_that_was_built_in_the_artefact_is_not_run(tmp_path):
    int8 = export_pair(tmp_path, backend="c")[1]
    (int8 / "harness").write_text("#!/bin/sh\n")
    (int8 / "harness").chmod(0o755)
    assert run_harness(PI3, int8)["different"] == 0


@CROSS
def test_instructions_grow_with_the_net(tmp_path):
    small = count_instructions(PI3, export_pair(tmp_path / "small", (24, 16, 4), backend="c")[1])
    large = count_instructions(PI3, export_pair(tmp_path / "large", (24, 128, 4), backend="c")[1])
    products = (24 * 128 + 128 * 4) / (24 * 16 + 16 * 4)
    assert 2 < large / small < 1.2 * products


def test_an_artefact_without_source_is_one_line(tmp_path):
    with pytest.raises(BoardError, match="holds no C source; deploy with the backend c"):
        count_instructions(PI3, tmp_path)
