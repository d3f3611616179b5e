"""The C policy on an emulated processor, one inference a request, over two named pipes.

The policy's harness is exchanged for a server (backends/c/c99/serve.c), so that the build files of either target do.
"""

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import Port, check_input
from quarl_bench.backends.c.microcontroller import CORE, make_for_microcontroller
from quarl_bench.backends.c.source import read_resource
from quarl_bench.boards.board import Board
from quarl_bench.boards.emulated import build_harness
from quarl_bench.boards.transport import QEMU
from quarl_bench.errors import BoardError

ARM = Board("aarch64", "emulated")
MACHINE = ("qemu-system-arm", "-M", "mps2-an386", "-cpu", CORE, "-nographic", "-monitor", "none", "-serial", "none")
ANSWER = 60.0  # for one inference
POLL_SECONDS = 1.0  # seconds between two looks at whether the emulator still runs


class ServedRunner:
    """A model that a process computes: input integers into one pipe, output integers out of another."""

    def __init__(
        self, kernel: str, ports: tuple[Port, Port], process: "subprocess.Popen[bytes]", pipes: Sequence[int]
    ) -> None:
        self.kernel, (self.input, self.output) = kernel, ports
        self._process, (self._to, self._from) = process, pipes

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs of a batch, as the protocol says; BoardError when the process ends or keeps silent."""
        check_input(self.kernel, x, self.input)
        rows = [np.frombuffer(self._ask(np.ascontiguousarray(row).tobytes()), self.output.dtype) for row in x]
        return np.array(rows, dtype=self.output.dtype).reshape(len(x), *self.output.shape)

    def _ask(self, request: bytes) -> bytes:
        os.write(self._to, request)  # shorter than a pipe's buffer, or the server is reading it
        answer, size = b"", self.output.dtype.itemsize * int(np.prod(self.output.shape))
        deadline = time.monotonic() + ANSWER
        while len(answer) < size:
            if select.select([self._from], [], [], POLL_SECONDS)[0]:
                answer += os.read(self._from, size - len(answer))
            elif self._process.poll() is not None:
                raise BoardError(f"{self.kernel}: it ended with exit code {self._process.returncode}; export again")
            elif time.monotonic() > deadline:
                raise BoardError(f"{self.kernel}: no answer within {ANSWER:.0f} s; is the machine overloaded?")
        return answer


@contextmanager
def serve_on_arm(artefact: Path, ports: tuple[Port, Port]) -> Iterator[ServedRunner]:
    """A C artefact under qemu-user; BoardError without compiler or emulator."""
    emulator = [QEMU, "-cpu", ARM.cpu]
    with (
        _exchange_harness(artefact) as folder,
        build_harness(ARM, folder) as server,
        _start(" ".join(emulator), ports, [*emulator, str(server)], folder) as runner,
    ):
        yield runner


@contextmanager
def serve_on_microcontroller(artefact: Path, ports: tuple[Port, Port]) -> Iterator[ServedRunner]:
    """A C artefact on an emulated Cortex-M without an operating system, its files behind semihosting."""
    with _exchange_harness(artefact) as folder:
        program = f"{folder}/policy.elf"
        make_for_microcontroller(folder, program, f"BUILD={folder}")
        hosting = ["-semihosting-config", "enable=on,target=native,arg=policy", "-kernel", program]
        with _start(f"qemu-system-arm {CORE}", ports, [*MACHINE, *hosting], folder, hosted=True) as runner:
            yield runner


@contextmanager
def _exchange_harness(artefact: Path) -> Iterator[Path]:
    """A copy of an artefact whose harness is the server."""
    with tempfile.TemporaryDirectory(prefix="quarl-serve-") as scratch:
        folder = Path(scratch) / "policy"
        shutil.copytree(artefact, folder)
        (folder / "harness.c").write_bytes(read_resource("serve.c"))
        yield folder


@contextmanager
def _start(
    kernel: str, ports: tuple[Port, Port], command: list[str], folder: Path, *, hosted: bool = False
) -> Iterator[ServedRunner]:
    """The server between its pipes; `hosted`: QEMU passes the program's arguments on."""
    names = [folder / "inputs", folder / "outputs"]
    for name in names:
        os.mkfifo(name)
    arguments = list(map(str, names))
    if hosted:
        place = command.index("-semihosting-config") + 1
        command[place] += "".join(f",arg={argument}" for argument in arguments)
    else:
        command += arguments
    quiet = subprocess.DEVNULL
    # Opened for both directions: opening waits for no one, and the server never reads an end of file.
    with contextlib.ExitStack() as stack:
        pipes = []
        for name in names:
            pipes.append(os.open(name, os.O_RDWR))
            stack.callback(os.close, pipes[-1])
        process = stack.enter_context(subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet))
        stack.callback(process.kill)
        yield ServedRunner(kernel, ports, process, pipes)
