"""What the plugin adds to `pytest --collect-only` on an empty file.

With and without the plugin in turns, a process each. Modules are compiled once, as an installed package's are, whatever
PYTHONDONTWRITEBYTECODE says here.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from turns import ContenderFailed, Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

EMPTY = 5  # pytest: no tests were collected
VARIANTS = {"with": [], "without": ["-p", "no:quarl_bench.plugin"]}


def time_collection(extra: list[str], folder: Path) -> tuple[float]:
    """Milliseconds of CPU time of one process."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *extra]
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    before = read_children()
    done = subprocess.run(command, cwd=folder, env=os.environ | compiled, check=False, capture_output=True)
    if done.returncode != EMPTY:
        raise ContenderFailed(f"pytest ended with exit code {done.returncode}: {done.stderr.decode()}")
    return (1e3 * (read_children() - before),)


def read_children() -> float:
    """Seconds of CPU time of the processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(turns: Turns) -> Iterator[Contest]:
    """Both in turns; the first time of each warms up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_empty.py").touch()
        for extra in VARIANTS.values():
            time_collection(extra, folder)
        taken = turns.repeat({name: partial(time_collection, extra, folder) for name, extra in VARIANTS.items()})
    yield Contest("pytest --collect-only", "ms of CPU time", pick(taken), (Pair("with", "without"),))


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 20))
