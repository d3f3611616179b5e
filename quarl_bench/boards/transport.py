"""Channels to boards: run the board's Python, copy files to it. What goes wrong ends in one line with a remedy."""

import contextlib
import os
import select
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from quarl_bench.boards.board import TRANSPORTS, Board, Transport
from quarl_bench.errors import BoardError
from quarl_bench.spec import Source

CONNECT = 10  # seconds until a silent host counts as one
ANSWER = 60.0  # seconds until a command counts as lost
SLOWEST = 50_000  # bytes a second of a copy that is waited for: a weak wireless link carries 0.4 Mbit
PERSIST = 60  # seconds that one ssh connection waits for the next command
NOT_EXECUTABLE, NOT_FOUND, NO_CONNECTION = 126, 127, 255  # exit codes
QEMU = "qemu-aarch64-static"


class Channel:
    """A process on this machine: the simplest channel, and what the others are built on."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def command(self, arguments: Sequence[str]) -> list[str]:
        """What runs here so that the board's Python runs there with `arguments`."""
        return [self.board.python, *arguments]

    def environment(self) -> dict[str, str]:
        """Environment variables of the process on the board."""
        return dict(os.environ)

    def call(self, arguments: Sequence[str], *, script: bytes = b"", timeout: float = ANSWER) -> str:
        """The output of the board's Python; `script` is its stdin. BoardError when that fails."""
        return self._finish(self.command(arguments), script, timeout)

    def stream(self, arguments: Sequence[str], timeout: float) -> Iterator[str]:
        """The lines of its output as they come; stdin stays open, so that it knows whether we still listen."""
        with tempfile.TemporaryFile() as errors, self._open(self.command(arguments), errors) as process:
            try:
                yield from self._read_lines(process, timeout)
                assert process.stdin is not None  # noqa: S101  (for the type checker)
                code = process.wait(ANSWER)
            except BaseException:
                process.kill()
                raise
            errors.seek(0)
            self._check(code, errors.read())

    def push(self, source: Path, target: str) -> None:
        """Copy a file or a folder to the board; `target` is its new name there."""
        try:
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)
        except (OSError, shutil.Error) as error:
            raise self.error(f"{source.name} cannot be copied to {target}: {_last_line(str(error))}") from error

    def close(self) -> None:
        """Nothing stays open."""

    def error(self, what: str) -> BoardError:
        """BoardError that names the board."""
        return BoardError(f"board {self.board.name!r}: {what}")

    def explain(self, code: int, line: str) -> str:
        """What an exit code and the last line on stderr mean, and what to do about it."""
        if code in (NOT_FOUND, NOT_EXECUTABLE):
            return f"{line or self.board.python}; set `python` of this board to a Python 3.9 or later"
        return line or f"ended with exit code {code} and without a word"

    def _open(self, command: list[str], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
        pipe = subprocess.PIPE
        try:
            return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=self.environment())  # noqa: S603
        except OSError as error:
            raise self.error(self._explain_start(command[0], error)) from error

    def _finish(self, command: list[str], stdin: bytes, timeout: float) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                command, input=stdin, capture_output=True, timeout=timeout, check=False, env=self.environment()
            )
        except OSError as error:
            raise self.error(self._explain_start(command[0], error)) from error
        except subprocess.TimeoutExpired as error:
            raise self.error(f"no answer within {timeout:.0f} s; is it switched on, and not swapping?") from error
        self._check(done.returncode, done.stderr)
        return done.stdout.decode(errors="replace")

    def _explain_start(self, program: str, error: OSError) -> str:
        if program == self.board.python:
            return self.explain(NOT_FOUND, f"{program}: {error.strerror}")
        return f"{program}: {error.strerror}; install it on this machine"

    def _check(self, code: int, stderr: bytes) -> None:
        if code != 0:
            raise self.error(self.explain(code, _last_line(stderr.decode(errors="replace"))))

    def _read_lines(self, process: "subprocess.Popen[bytes]", timeout: float) -> Iterator[str]:
        assert process.stdout is not None  # noqa: S101  (for the type checker)
        rest = b""
        while True:
            if not select.select([process.stdout], [], [], timeout)[0]:
                raise self.error(f"no word for {timeout:.0f} s in the middle of a run; is it swapping, or gone?")
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)


class SshChannel(Channel):
    """The system's ssh and scp, without questions, over one connection. Keys and jump hosts are ssh's own business."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._sockets = tempfile.mkdtemp(prefix="quarl-ssh-")  # short: a socket's path has about 100 characters
        options = [
            *board.options,  # first, because ssh takes the first of each
            *((f"Port={board.port}",) if board.port else ()),
            *("BatchMode=yes", f"ConnectTimeout={CONNECT}", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
            *("ControlMaster=auto", f"ControlPath={self._sockets}/%C", f"ControlPersist={PERSIST}", "LogLevel=ERROR"),
        ]
        self._options = [part for option in options for part in ("-o", option)]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """One shell word per argument, whatever it holds."""
        return ["ssh", *self._options, "--", self.board.host, shlex.join([self.board.python, *arguments])]

    def push(self, source: Path, target: str) -> None:
        """By scp, for as long as a slow link needs; a message of the board's, such as a full disk, is passed on."""
        flags = ["-r"] if source.is_dir() else []
        try:
            self._finish(
                ["scp", "-q", *flags, *self._options, "--", str(source.absolute()), f"{self.board.host}:{target}"],
                b"",
                ANSWER + _count_bytes(source) / SLOWEST,
            )
        except BoardError as error:
            reason = str(error).partition(": ")[2]
            raise self.error(f"{source.name} cannot be copied to {target}: {reason}") from error

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            command = ["ssh", *self._options, "-O", "exit", "--", self.board.host]
            subprocess.run(command, capture_output=True, timeout=CONNECT, check=False)  # noqa: S603
        shutil.rmtree(self._sockets, ignore_errors=True)

    def explain(self, code: int, line: str) -> str:
        """Trouble of ssh itself is exit code 255."""
        if code == NO_CONNECTION:
            what = line or "the connection was cut"
            return f"not reached over ssh: {what}; try `ssh -o BatchMode=yes {self.board.host} true`"
        return super().explain(code, line)


class EmulatedChannel(Channel):
    """qemu-user on a folder with the board's system: the same files, another processor."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The Python of the root folder."""
        root = Path(self.board.rootfs).expanduser()
        settings = {"PYTHONHOME": str(root / "usr"), "PYTHONPATH": str(root / "opt" / "quarl"), "LANG": "C.UTF-8"}
        pairs = (part for name, value in settings.items() for part in ("-E", f"{name}={value}"))
        return [QEMU, "-cpu", self.board.cpu, "-L", str(root), *pairs, str(root / "usr/bin/python3"), *arguments]

    def environment(self) -> dict[str, str]:
        """Nothing of this machine's Python."""
        return {"PATH": os.environ.get("PATH", os.defpath)}

    def explain(self, code: int, line: str) -> str:
        """The emulator speaks of files in the root folder."""
        if not (Path(self.board.rootfs).expanduser() / "usr/bin/python3").exists():
            return f"{self.board.rootfs} has no usr/bin/python3; make it with hw/raspi/make_rootfs.sh"
        return super().explain(code, line)


LOCAL = Transport("local", Channel, here=True)
SSH = Transport("ssh", SshChannel, needs=("host",))
EMULATED = Transport("emulated", EmulatedChannel, needs=("rootfs",), source=Source.EMULATED)


def open_channel(board: Board) -> Channel:
    """A channel to `board`; nothing is sent before it is used."""
    channel: Channel = TRANSPORTS.find(board.transport).open(board)
    return channel


def _count_bytes(source: Path) -> int:
    """Of a file, or of all files of a folder."""
    files = source.rglob("*") if source.is_dir() else (source,)
    return sum(file.stat().st_size for file in files if file.is_file())


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
