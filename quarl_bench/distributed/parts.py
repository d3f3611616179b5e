"""The parts of one pytest run on Ray: each is a process with `--quarl-shard`, and comes back as its results file."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quarl_bench.distributed.engine import open_engine
from quarl_bench.distributed.nodes import check_versions, list_nodes
from quarl_bench.distributed.tasks import Outcome, ProcessKilled, run_tasks
from quarl_bench.errors import EngineError

PARTS_PER_CORE = 2  # a node that is slower takes fewer
FINISHED = (0, 1, 5)  # exit codes of pytest: all was run; of 5, nothing: there are more parts than cells
OWN = ("--quarl-shard", "--quarl-json", "--quarl-compare")  # options that are set here


@dataclass(frozen=True)
class Part:
    """Part `index` of `total`, from 1 on."""

    index: int
    total: int

    @property
    def name(self) -> str:
        """As --quarl-shard takes it."""
        return f"{self.index}/{self.total}"


@dataclass(frozen=True)
class PartPlan:
    """What all parts have in common; the folder of the checkout has the same path on all machines."""

    folder: Path
    arguments: tuple[str, ...]  # of pytest
    compared: str = ""  # the results file that balances the parts, as text


def run_part(part: Part, plan: PartPlan) -> str:
    """Run it in a process of its own, and return the results file as text.

    EngineError where pytest wrote none; ProcessKilled where a signal ended it.
    """
    if not plan.folder.is_dir():
        raise EngineError(f"part {part.name}: no folder {plan.folder}; check the project out there on every node")
    with tempfile.TemporaryDirectory(prefix="quarl-part-") as scratch:
        results, last = Path(scratch) / "part.json", Path(scratch) / "last.json"
        own = [f"--quarl-shard={part.name}", f"--quarl-json={results}"]
        if plan.compared:
            last.write_text(plan.compared, encoding="utf-8")
            own.append(f"--quarl-compare={last}")
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plan.arguments, *own]
        done = subprocess.run(command, cwd=plan.folder, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            raise ProcessKilled(f"part {part.name}: pytest was ended by signal {-done.returncode}")
        if done.returncode not in FINISHED or not results.exists():
            said = [*done.stdout.strip().splitlines(), *done.stderr.strip().splitlines()] or ["nothing"]
            why = next((line for line in reversed(said) if "error" in line.lower()), said[-1])
            raise EngineError(f"part {part.name}: pytest ended with {done.returncode}; it said: {why.strip()}")
        return results.read_text(encoding="utf-8")


def run_parts(
    plan: PartPlan, count: int | None, *, address: str | None = None, workers: int = 1, progress: bool = False,
    should_stop: Callable[[], bool] = lambda: False, note: Callable[[str], None] = lambda _: None,
) -> Iterator[Outcome[Part]]:  # fmt: skip
    """All parts, `count` of them or twice the cores that there are, as they finish; the value is a results file.

    Raises EngineError as `open_engine` does, and, naming the node, where one runs other versions.
    """
    with open_engine(address, 1 if address else workers, progress=progress) as ray:
        nodes = list_nodes(ray)
        if address is not None:
            check_versions(ray, nodes)
        total = count or PARTS_PER_CORE * sum(node.cores for node in nodes)
        remote = ray.remote(max_calls=1)(run_part).options(num_cpus=1, max_retries=0)

        def submit(part: Part) -> Any:
            return remote.remote(part, plan)

        yield from run_tasks(
            ray, [Part(index, total) for index in range(1, total + 1)], submit, lambda part: part.name, "parts",
            progress=progress, should_stop=should_stop, note=note,
        )  # fmt: skip


def find_own(arguments: Sequence[str]) -> str | None:
    """The first argument of pytest that is set here, and by nobody else."""
    return next((word for word in arguments if word.partition("=")[0] in OWN), None)
