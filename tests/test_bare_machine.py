"""A machine with nothing but Python: every file of tests and benches is collected, every refusal is still one line."""

import subprocess
import sys

import pytest

from quarl_bench.backends.c.microcontroller import PROGRAMS as ON_MICROCONTROLLER
from quarl_bench.backends.fpga.tools.simulation import VERILATOR
from quarl_bench.boards.emulated import PROGRAMS as ON_ARM
from quarl_bench.errors import BoardError, DeploymentError
from quarl_bench.system.programs import Program
from tests.support.places import ROOT

REFUSALS = "one_line or refuse or leaves_no_folder"  # words in the names of such tests
COMMANDS = (
    "cli/test_cli", "backends/fpga/test_simulation", "prove/test_proof", "checking/test_check",
    "papers/lqcc/test_selection", "report/test_page", "distributed/test_grid", "actorq/test_ray",
    "training/multi_seed/test_multi_seed",
)  # fmt: skip
MINUTES = 5
PROGRAMS = {program.name: program for program in (VERILATOR, Program("cc", "gcc"), *ON_ARM, *ON_MICROCONTROLLER)}


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A path with no program at all; Python is called by its full name."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("CC", raising=False)
    return tmp_path / "bin"


def run_pytest(*arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60 * MINUTES)


def test_every_file_is_collected(bare):
    done = run_pytest("--collect-only", "tests", "benches")
    assert done.returncode == 0, done.stdout[-2000:]


def test_every_refusal_of_the_command_line_is_the_same(bare):
    files = [f"tests/{name}.py" for name in COMMANDS]
    done = run_pytest("-k", REFUSALS, *files)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "passed" in done.stdout


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_a_missing_program_is_named_with_its_package(program, bare):
    with pytest.raises(BoardError, match=f"what: {program.name} is not installed; apt-get install {program.package}$"):
        program.find("what", BoardError)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Verilator 4.228 2022-10-01", "is version 4.228, wanted is 5.006 or newer; apt-get install verilator"),
        ("exit 1", "says no version (exit code 1), wanted is 5.006 or newer; apt-get install verilator"),
        ("true", "says no version (no word), wanted is 5.006 or newer; apt-get install verilator"),
    ],
)
def test_an_old_or_broken_program_is_one_line(script, message, bare):
    program = bare / "verilator"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(DeploymentError) as caught:
        VERILATOR.find("fpga: to simulate")
    assert str(caught.value) == f"fpga: to simulate: {program} {message}"


def test_what_is_new_enough_is_found(bare):
    program = bare / "verilator"
    program.write_text("#!/bin/sh\necho Verilator 5.006 2023-01-22 rev UNKNOWN\n")
    program.chmod(0o755)
    assert VERILATOR.find("fpga: to simulate") == str(program)
