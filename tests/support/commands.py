"""Commands of `quarl` in processes of their own, which start in milliseconds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forks import run_python

PROCESS = ("-m", "quarl_bench.cli")
JUDGED = (0, 1, 3)  # exit codes of `quarl check`


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
    """What `quarl ...` does in the folder, whose modules are on the path, command by command."""
    runs = [run_python(*PROCESS, *command, cwd=folder) for command in commands]
    return [Done(run.returncode, run.stdout, run.stderr) for run in runs]
