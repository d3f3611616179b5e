"""The host's side of a policy behind a serial line: hw/fpga/rtl/quarl_serial.v, on a board or simulated.

A link is a lease: the port is locked for other processes while it is open. Before the first observation the board is
asked which design it holds.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.fpga.rtl.design import Design
from quarl_bench.backends.fpga.rtl.wrapper import BAUD, UART_TOP, count_action_bytes
from quarl_bench.backends.fpga.tools.simulation import build
from quarl_bench.errors import BoardError
from quarl_bench.quantization.affine import Integers
from quarl_bench.system.extras import require

VERSION = 1
IDENTITY_BYTES = 37  # version, values, outputs, design
ANSWER = 2.0  # seconds until a silent board counts as one
SIMULATED_CLOCKS = 8  # clock cycles a bit of the simulated line takes
SIMULATED_SILENCE = 200  # bits


class Link:
    """An open line to a board that holds `plan`'s design."""

    def __init__(self, port: str, plan: FoldingPlan, *, baud: int = BAUD, timeout: float = ANSWER) -> None:
        """Open `port` for this process alone and ask the board for its design; BoardError when it has another."""
        self._plan, self._port = plan, port
        self._line = _open_port(port, baud, timeout)
        try:
            self._check_identity()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the serial port, so that another program can open it."""
        self._line.close()

    def run(self, q: Integers) -> tuple[Integers, Integers]:
        """Output integers (n, outputs) and cycles (n,) for input integers (n, inputs)."""
        pairs = [self._run_one(row) for row in q]
        return np.array([outputs for outputs, _ in pairs]), np.array([cycles for _, cycles in pairs])

    def _run_one(self, row: Integers) -> tuple[Integers, int]:
        plan = self._plan
        values = np.zeros(plan.in_lanes * plan.in_beats, dtype=np.int8)
        values[: len(row)] = row.astype(np.uint8).view(np.int8)
        size = count_action_bytes(plan)
        body = self._ask(b"R" + values.tobytes(), b"r", size + 4)
        kind = f"<{'i' if plan.out_signed else 'u'}{plan.out_bytes}"
        outputs = np.frombuffer(body[:size], dtype=kind).astype(np.int64)
        return outputs, int.from_bytes(body[size:], "little")

    def _check_identity(self) -> None:
        plan = self._plan
        body = self._ask(b"Q", b"q", IDENTITY_BYTES)
        version, design = body[0], body[5:]
        if version != VERSION:
            raise BoardError(f"{self._port}: the board speaks version {version}, not {VERSION}; build its design again")
        if design != plan.digest:
            raise BoardError(
                f"{self._port}: the board holds design {design.hex()[:16]}, not {plan.digest.hex()[:16]}; load this "
                "policy's bitstream"
            )
        sizes = (plan.in_lanes * plan.in_beats, count_action_bytes(plan))
        if (int.from_bytes(body[1:3], "little"), int.from_bytes(body[3:5], "little")) != sizes:
            raise BoardError(f"{self._port}: the board's sizes are not {sizes}; build its design again")

    def _ask(self, request: bytes, kind: bytes, size: int) -> bytes:
        """The body of the answer to a request; BoardError for silence, damage and refusal."""
        with _one_line_for(self._port):
            self._line.reset_input_buffer()
            self._line.write(request + bytes([find_crc(request)]))
            answer = self._line.read(1)
            if answer == kind:
                answer += self._line.read(size + 1)
            elif answer == b"e":
                answer += self._line.read(1)
        if not answer:
            raise BoardError(f"{self._port}: the board is silent; check its power, its bitstream and the baud rate")
        if answer[:1] == b"e":
            raise BoardError(f"{self._port}: a request arrived damaged; check the cable and the baud rate")
        if len(answer) != size + 2 or find_crc(answer[:-1]) != answer[-1]:
            raise BoardError(
                f"{self._port}: the answer broke off or is damaged ({len(answer)} of {size + 2} bytes); check the cable"
            )
        return bytes(answer[1:-1])


def find_crc(data: bytes) -> int:
    """CRC-8 of polynomial 0x07, start 0, not reflected: the checksum behind every frame on the serial line."""
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc << 1 ^ 0x07) & 0xFF if crc & 0x80 else crc << 1
    return crc


@contextmanager
def open_link(port: str, plan: FoldingPlan, *, baud: int = BAUD, timeout: float = ANSWER) -> Iterator[Link]:
    """A link that is closed at the end of the block."""
    link = Link(port, plan, baud=baud, timeout=timeout)
    try:
        yield link
    finally:
        link.close()


@contextmanager
def simulate_board(design: Design, cache: Path) -> Iterator[str]:
    """The port of a Verilated board that holds `design`; it lives as long as the block."""
    options = [f"-GCLOCKS={SIMULATED_CLOCKS}", f"-GTIMEOUT={SIMULATED_CLOCKS * SIMULATED_SILENCE}"]
    binary = build(design, cache, UART_TOP, "terminal.cpp", {"CLOCKS": SIMULATED_CLOCKS}, options)
    with subprocess.Popen(
        [str(binary)], cwd=design.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _read_port(process.stdout)
        finally:
            if process.stdin:
                process.stdin.close()  # which ends it


def _read_port(stdout: IO[str] | None) -> str:
    port = stdout.readline().strip() if stdout else ""
    if not port:
        raise BoardError("the simulated board has no terminal; is /dev/pts mounted?")
    return port


def _open_port(port: str, baud: int, timeout: float) -> Any:
    serial = require("serial", "fpga", "a serial line (pyserial)")
    with _one_line_for(port):
        # `exclusive` is the lease: the lock is the system's, and ends with the process.
        return serial.Serial(port, baud, timeout=timeout, write_timeout=timeout, exclusive=True)


@contextmanager
def _one_line_for(port: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # pyserial's errors are such
        taken = "exclusively lock" in str(error)
        remedy = "another run has it: wait for its end" if taken else "check the port's name, the cable and your rights"
        raise BoardError(f"{port}: {' '.join(str(error).split())}; {remedy}") from error
