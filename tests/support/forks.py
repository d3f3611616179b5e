"""Pythons that start in milliseconds: forked from one that has imported what takes seconds to import.

`run_python` is `subprocess.run([sys.executable, ...])`: its own working directory, environment, path of modules,
`__main__`, signals, streams and exit code. A test keeps a cold Python where what is imported, or when, is what it is
about, or what is printed as the process starts.

The server is multiprocessing's, begun by the first call; it ends with the process that began it. That of several
workers of xdist is one, which they are told of. It has run nothing, and has read no entry point. Of what pytest
rewrites it has imported this package without its plugin.
"""

import atexit
import importlib
import linecache
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from multiprocessing import forkserver, process, resource_tracker
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, Self, TextIO
from unittest import mock

from tests.support.places import ROOT

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["tests.support.warm"])


def start_server() -> ForkServerContext:
    """Multiprocessing's way to start a process, with the server running."""
    with mock.patch.dict(os.environ, {"PYTHONPATH": str(ROOT)}):
        forkserver._forkserver.ensure_running()
    return SERVER


def share_server() -> str:
    """How processes that this one starts, and outlives, find its server: its key, from Python 3.14 on, and address."""
    start_server()
    key = getattr(forkserver._forkserver, "_forkserver_authkey", b"")
    return f"{key.hex()} {forkserver._forkserver._forkserver_address}"


def join_server(shared: str) -> None:
    """Use the server of another process from now on, which is `shared`."""
    server = forkserver._forkserver
    key, address = shared.split(" ", 1)
    server._forkserver_authkey = bytes.fromhex(key)
    server.ensure_running = resource_tracker.ensure_running  # it does, and is no child of this process
    server._forkserver_address = address
    server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)  # whose end ends a server of one's own


class Fork:
    """A Python that runs `arguments`: `-c` with code, `-m` with a module, or a file, and what these are told.

    `stdout` and `stderr` are the numbers of open files, or `PIPE`, which the attributes of these names then read;
    without them its output is lost. `leads` makes it the leader of a group of processes, which `kill` ends whole.
    """

    def __init__(
        self,
        *arguments: object,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        leads: bool = False,
    ) -> None:
        words, environment = [str(argument) for argument in arguments], dict(os.environ if env is None else env)
        self.leads = leads
        with ExitStack() as stack:
            self.stdout, out = self._open(stdout, stack)
            self.stderr, err = self._open(stderr, stack)
            told = (words, str(cwd or Path.cwd()), environment, leads)
            self._process = start_server().Process(target=_enter, args=(_Streams(out, err), *told))
            self._process.start()
        self.pid = self._process.pid

    @staticmethod
    def _open(wanted: int | None, stack: ExitStack) -> tuple[TextIO | None, int]:
        """What this process reads, and the number that the other gets, which is closed here."""
        if wanted is None:
            return None, stack.enter_context(Path(os.devnull).open("w")).fileno()
        if wanted != PIPE:
            return None, wanted
        reads, writes = os.pipe()
        stack.callback(os.close, writes)
        return os.fdopen(reads), writes

    def poll(self) -> int | None:
        """As of `Popen`."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """As of `Popen`."""
        self._process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("python", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """To the process, and to its group where it leads one."""
        if self.poll() is None:
            (os.killpg if self.leads else os.kill)(self.pid, number)

    def kill(self) -> None:
        """SIGKILL, and its end."""
        self.send_signal(signal.SIGKILL)
        self._process.join()

    def read(self, timeout: float | None = None) -> str:
        """What it says on its piped `stdout` to its end."""
        assert self.stdout is not None
        with self.stdout:
            said = self.stdout.read()
        self.wait(timeout)
        return said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()


class _Streams:
    """Two open files, which go to the process with its arguments."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def __getstate__(self) -> Any:
        return [DupFd(number) for number in self.numbers]

    def __setstate__(self, state: Any) -> None:
        self.numbers = tuple(each.detach() for each in state)


def run_python(
    *arguments: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run([sys.executable, *arguments], capture_output=True, text=True, ...)`."""
    with TemporaryFile("w+", errors="replace") as out, TemporaryFile("w+", errors="replace") as err:
        with Fork(*arguments, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno()) as process:
            code = process.wait(timeout)
        for stream in (out, err):
            stream.seek(0)
        done = subprocess.CompletedProcess(arguments, code, out.read(), err.read())
    if check and done.returncode:
        raise AssertionError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def _enter(streams: _Streams, words: list[str], folder: str, environment: dict[str, str], leads: bool) -> None:
    """Become what a fresh Python is, and never return."""
    from tests.support.warm import MAIN, PATH

    if leads:
        os.setsid()
    multiprocessing.set_start_method(None, force=True)
    process._current_process, process._parent_process, process._children = MAIN, None, set()
    forkserver._forkserver.__init__()
    for target, number in enumerate(streams.numbers, 1):
        os.dup2(number, target)
        os.close(number)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:] = [*filter(None, environment.get("PYTHONPATH", "").split(os.pathsep)), *PATH]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    code = _run(words)
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _run(words: list[str]) -> int:
    """The exit code of the program."""
    try:
        _execute(words)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return (stop.code or 0) & 0xFF
        sys.stderr.write(f"{stop.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  (any ends a Python)
        error.__traceback__ = error.__traceback__.tb_next.tb_next  # without this module's lines
        sys.excepthook(type(error), error, error.__traceback__)
        if not isinstance(error, KeyboardInterrupt):
            return 1
        sys.stdout.flush()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return 0


def _execute(words: list[str]) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy._run_module_as_main(words[1])
        return
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        sys.path.insert(0, "")
        program, name = words[1], "<string>"
        if sys.version_info >= (3, 13):  # whose tracebacks show the lines of such a program too
            linecache.cache[name] = len(program), None, program.splitlines(keepends=True), name
    else:
        sys.argv[:] = words
        path = Path(words[0]).resolve()
        sys.path.insert(0, str(path.parent))
        program, name = path.read_text(), str(path)
        main.__file__ = name
    exec(compile(program, name, "exec"), main.__dict__)
