"""Commands of `quarl` in a process of their own, forked from one that has imported what all of them import.

Torch takes seconds to import. The server is multiprocessing's: one for every process of tests, begun by the first
command, which ends with it. It has run no command, and has read no entry point, so that each is as it would be alone.
"""

import contextlib
import io
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.support.places import ROOT

PROCESS = [sys.executable, "-m", "quarl_bench.cli"]
JUDGED = (0, 1, 3)  # exit codes of `quarl check`
IMPORTED = ("torch", "quarl_bench.checking.answer", "quarl_bench.cli", "tests.support.commands")
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(list(IMPORTED))


@dataclass(frozen=True)
class Done:
    """What a command left."""

    code: int
    stdout: str
    stderr: str

    @property
    def result(self) -> Any:
        """Of --json."""
        assert self.code in JUDGED, self.stderr
        return json.loads(self.stdout)


def run_commands(folder: Path, *commands: Sequence[object]) -> list[Done]:
    """What `quarl ...` does in the folder, whose modules are on the path, command by command in one process."""
    lines = [[str(word) for word in command] for command in commands]
    ours, theirs = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_run, args=(theirs, str(folder), dict(os.environ), lines))
    process.start()
    theirs.close()
    try:
        return [Done(*each) for each in ours.recv()]
    finally:
        process.join()


def _run(connection: Connection, folder: str, environment: dict[str, str], commands: list[list[str]]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = [folder, str(ROOT)]
    from quarl_bench.cli import main

    done = []
    for arguments in commands:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(arguments)
            except SystemExit as stop:
                code = stop.code
        done.append((code, out.getvalue(), err.getvalue()))
    connection.send(done)
