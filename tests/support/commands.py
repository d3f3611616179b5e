"""Commands of `quarl` in processes of their own, which start in milliseconds."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.forks import run_python

PROCESS = ("-m", "quarl_bench.cli")
# A policy's returns and costs are of little: for tests that look at neither.
BRIEF = """
import os, sys
from quarl_bench.checking import costs
from quarl_bench.cli import main
from quarl_bench.system import compiler
from quarl_bench.training.sb3 import checkpoints, run

run.VALIDATION_EPISODES, run.SCORE_EPISODES, checkpoints.CURVE_POINTS = 4, 6, 4
costs.CALLS, costs.SECONDS = 50, 1e-3
compiler.OPTIMIZE, os.environ["CFLAGS"] = ("-O0",), "-O1"
sys.exit(main())
"""
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


def run_commands(folder: Path, *commands: Sequence[object], process: Sequence[str] = PROCESS) -> list[Done]:
    """What `quarl ...` does in the folder, whose modules are on the path, command by command."""
    runs = [run_python(*process, *command, cwd=folder) for command in commands]
    return [Done(run.returncode, run.stdout, run.stderr) for run in runs]
