"""A machine with nothing but Python: every file of tests and benches is collected, every refusal is still one line."""

import re

import pytest

from quarl_bench.backends.c.microcontroller import PROGRAMS as ON_MICROCONTROLLER
from quarl_bench.backends.fpga.tools.simulation import VERILATOR
from quarl_bench.boards.emulated import PROGRAMS as ON_ARM
from quarl_bench.errors import BoardError, DeploymentError
from quarl_bench.system.programs import Program
from tests.support.forks import run_python
from tests.support.places import ROOT

REFUSALS = "one_line or refuse or leaves_no_folder"  # words in the names of such tests
COMMANDS = (  # the files that run them
    "test_cli.py", "test_simulation.py", "test_proof.py", "test_check.py", "test_selection.py", "test_page.py",
    "test_grid.py", "test_ray.py", "test_multi_seed.py",
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


def test_every_file_is_collected_and_every_refusal_of_the_command_line_is_the_same(bare):
    """One run for both: it is the imports of all files that take long."""
    chosen = f"({REFUSALS}) and ({' or '.join(COMMANDS)})"
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "-rA", "tests", "benches")
    done = run_python(*command, cwd=ROOT, timeout=60 * MINUTES)
    assert done.returncode == 0, done.stdout[-2000:]  # a file that is not collected is an error
    told = [line for line in done.stdout.splitlines() if line.startswith(("PASSED", "SKIPPED"))]
    assert {*COMMANDS} <= {name for line in told for name in re.findall(r"test_\w+\.py", line)}
    assert "test_cli.py" in "".join(line for line in told if line.startswith("PASSED"))


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
