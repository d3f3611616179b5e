"""The C policy on an emulated board: cross-compiled here, run by qemu-user; its outputs and its instructions counted.

An emulator's time says nothing about a processor's, so none is taken. Instruction counts are those of one compiler.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from quarl_bench.backends.files import GOLDEN
from quarl_bench.boards.board import Board
from quarl_bench.boards.transport import QEMU
from quarl_bench.errors import BoardError
from quarl_bench.system.programs import Program

COMPILER = "aarch64-linux-gnu-gcc"
PROGRAMS = (
    Program(COMPILER, "gcc-aarch64-linux-gnu"),
    Program(QEMU, "qemu-user-static"),
    Program("make", "make"),
)
SECONDS = 600.0
CALLS = 5
TRACE = ("-singlestep", "-d", "exec,nochain", "-D", "/dev/stderr")  # a line per instruction


def count_instructions(board: Board, artefact: Path) -> int:
    """Instructions of one inference, with a few dozen of the harness's own: of many calls less those of one."""
    with build_harness(board, artefact) as harness:
        single = harness.with_name("single.safetensors")  # one pair: the trace has a line per instruction
        try:
            save_file({name: values[:1] for name, values in load_file(artefact / GOLDEN).items()}, single)
        except (OSError, SafetensorError) as error:
            raise BoardError(f"{artefact / GOLDEN}: {error}; export again") from error
        one, many = (_count_lines([*_emulate(board, harness, TRACE), str(single), str(n)]) for n in (1, CALLS))
        return (many - one) // (2 * (CALLS - 1))  # the harness has two loops


def _emulate(board: Board, harness: Path, options: Sequence[str] = ()) -> list[str]:
    return [QEMU, "-cpu", board.cpu, *options, str(harness)]


def _count_lines(command: list[str]) -> int:
    lines = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:  # noqa: S603
        assert process.stderr is not None  # noqa: S101  (for the type checker)
        while data := process.stderr.read(1 << 20):
            lines += data.count(b"\n")
    return lines


@contextmanager
def build_harness(board: Board, artefact: Path) -> Iterator[Path]:
    """The harness of a C artefact, cross-compiled for the board's processor without shared libraries."""
    if not (artefact / "Makefile").exists():
        raise BoardError(f"board {board.name!r}: {artefact} holds no C source; deploy with the backend c")
    for program in PROGRAMS:
        program.find(f"board {board.name!r}", BoardError)
    with tempfile.TemporaryDirectory(prefix="quarl-c-") as folder:
        work = Path(folder) / "policy"
        shutil.copytree(artefact, work)
        tuned = "" if board.cpu == "max" else f" -mcpu={board.cpu}"
        integer = (work / "kernels.h").exists()
        settings = [f"CC={COMPILER}", f"CFLAGS=-O3{tuned}", f"DEFINES={'-DQUARL_S8' if integer else ''}"]
        command = ["make", "-B", "harness", *settings, "LDFLAGS=-static"]  # one that came along is another machine's
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=SECONDS, check=False)  # noqa: S603
        if done.returncode:
            complaint = [line for line in done.stderr.splitlines() if "error" in line] or ["no word"]
            raise BoardError(f"board {board.name!r}: {COMPILER} refuses the policy: {complaint[0]}; export again")
        yield work / "harness"
