"""`quarl nightly`: a pytest run in parts on Ray, merged into one results file."""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_engine, add_workers, new_command, read_path
from quarl_bench.cli.commands.results.compare import CHANGED
from quarl_bench.cli.commands.results.report import merge_files
from quarl_bench.cli.printing import print_result, say
from quarl_bench.cli.stopping import STOPPED, listen_for_stop
from quarl_bench.errors import EngineError, SpecError
from quarl_bench.system.atomic import RESULTS, open_file
from quarl_bench.system.counts import read_positive

if TYPE_CHECKING:
    from quarl_bench.distributed.parts import Part, PartPlan
    from quarl_bench.distributed.tasks import Outcome

PROFILE = "--quarl-profile"
EXIT_CODES = (
    f"exit codes: 0 done, 2 wrong input, or a part without results (one line on stderr), {STOPPED} stopped, "
    f"{CHANGED} a verdict is another one than in --compare, 130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl nightly`: where its parts run, and what else pytest is told."""
    command = new_command(commands, "nightly", run,
        "quarl nightly --address head:6379 --compare last.json -- -k ppo", EXIT_CODES)  # fmt: skip
    command.add_argument(
        "arguments", nargs="*", metavar="ARGUMENT",
        help=f"arguments of pytest, after `--`. Without {PROFILE} the profile is nightly. The tests of the current "
        "folder are run; every node needs this checkout at the same path",
    )  # fmt: skip
    add_engine(command)
    add_workers(command)
    command.add_argument("--parts", type=read_positive, metavar="N",
                         help="into how many the run is cut. Default: two for each core.")  # fmt: skip
    command.add_argument("--compare", type=read_path, metavar="FILE",
                         help="results file of the last run: its durations balance the parts, and what moved since is "
                         "told. Default: none.")  # fmt: skip
    command.add_argument("--output", type=read_path, default=Path("nightly.json"), metavar="FILE",
                         help="results file that is written. Default: nightly.json.")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run all parts and write their merged results; 1 where a verdict changed since the last run."""
    from quarl_bench.distributed.parts import PartPlan, find_own
    from quarl_bench.report.documents import read_results

    if (word := find_own(options.arguments)) is not None:
        raise SpecError(f"{word} is for the command to set; give --parts, --output or --compare before `--`")
    open_file(options.output, RESULTS)
    compared = ""
    if options.compare is not None:
        compared = json.dumps(read_results(options.compare).data)
    profile = [] if any(word.partition("=")[0] == PROFILE for word in options.arguments) else [f"{PROFILE}=nightly"]
    plan = PartPlan(Path.cwd(), (*profile, *options.arguments), compared)
    finished = _run_parts(options, plan)
    if finished is None:
        say("stopped; what was measured is in the cache, and is not measured again")
        return STOPPED
    if not any(part["rows"] or part["skipped"] for part in (json.loads(done.value) for done in finished)):
        raise SpecError(f"nothing is selected by {' '.join(plan.arguments)}; name benches, or another -k")
    with tempfile.TemporaryDirectory(prefix="quarl-nightly-") as scratch:
        paths = []
        for done in finished:
            path = Path(scratch) / f"part-{done.task.index}.json"
            path.write_text(done.value, encoding="utf-8")
            paths.append(path)
        summary, lines, code = merge_files(paths, options.output, options.compare)
    retries = sum(done.retries for done in finished)
    print_result(options, summary | {"retries": retries}, "\n".join([*lines, f"{retries} retries"]))
    return code


def _run_parts(options: argparse.Namespace, plan: "PartPlan") -> "list[Outcome[Part]] | None":
    """All parts; None where the run was stopped before, EngineError where one has no results."""
    from quarl_bench.distributed.parts import run_parts

    finished = []
    should_stop = listen_for_stop(signal.SIGTERM)
    for done in run_parts(
        plan, options.parts, address=options.address, workers=options.workers, progress=sys.stderr.isatty(),
        should_stop=should_stop, note=say,
    ):  # fmt: skip
        if done.failure:
            raise EngineError(done.failure)
        finished.append(done)
    return None if should_stop() or not finished else finished
