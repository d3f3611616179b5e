"""`quarl grid`: a list of trainings and measurements as tasks on Ray, into the store that pytest reads."""

import argparse
import signal
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_engine, add_workers, new_command, read_path
from quarl_bench.cli.emulation import warn_of_emulation
from quarl_bench.cli.printing import print_result, say
from quarl_bench.cli.stopping import STOPPED, STOPPING, listen_for_stop
from quarl_bench.errors import EngineError
from quarl_bench.evaluation.profiles import choose_profile
from quarl_bench.system.atomic import open_folder
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.extras import needing
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.distributed.grid import FinishedTask


def add_command(commands: Any) -> None:
    """Add `quarl grid`: a TOML file of tasks, and where their work is to run."""
    command = new_command(commands, "grid", run,
        "quarl grid SPEC.toml --workers 2", STOPPING)  # fmt: skip
    command.add_argument(
        "spec", type=read_path,
        help="TOML with [[task]] tables: algo, environments, seeds; schemes, origin, cores, memory (bytes); multi_seed "
        "= true for all seeds in one process, and steps",
    )  # fmt: skip
    add_engine(command)
    add_workers(command)
    command.add_argument("--cache-dir", type=read_path, metavar="PATH",
                         help="the store; a folder that all machines share. Default: $QUARL_CACHE_DIR, else "
                         "~/.cache/quarl_bench.")  # fmt: skip
    command.add_argument("--baselines", type=read_path, default=Path("baselines"), metavar="PATH",
                         help="folder of committed policies; policies of `multi_seed` tasks are written there. "
                         "Default: baselines.")  # fmt: skip
    command.add_argument("--episodes", type=read_episodes, help="episodes per policy. Default: the nightly's, 100.")
    command.add_argument("--games", type=read_episodes,
                         help="episodes on Atari. Default: as --episodes; without it the nightly's, 114.")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run what is missing, and say what every task came to."""
    with needing("sb3", "training"):
        from quarl_bench.distributed.grid import GridPlan, list_precisions, read_tasks, run_grid

    tasks = read_tasks(options.spec)
    warn_of_emulation(list_precisions(tasks))
    cache = open_folder((options.cache_dir or default_cache()).absolute())
    profile = choose_profile("nightly", options.episodes)
    profile = replace(profile, games=options.games or profile.games)
    plan = GridPlan(cache, options.baselines.absolute(), profile)
    finished = list(
        run_grid(
            tasks, plan, address=options.address, workers=options.workers, progress=sys.stderr.isatty(),
            should_stop=listen_for_stop(signal.SIGTERM), note=say,
        )
    )  # fmt: skip
    retries = sum(done.retries for done in finished)
    lines = [line for done in finished for line in _describe(done)]
    lines.append(f"{len(finished)} of {len(tasks)} tasks, {retries} retries")
    print_result(options, {"tasks": [asdict(done) for done in finished], "retries": retries}, "\n".join(lines))
    if len(finished) < len(tasks):
        say("stopped; the same command goes on at the checkpoints")
        return STOPPED
    failed = [done for done in finished if done.failure]
    if failed:
        raise EngineError(
            f"{len(failed)} of {len(tasks)} tasks failed; first {failed[0].task.name}: {failed[0].failure}"
        )
    return 0


def _describe(done: "FinishedTask") -> list[str]:
    again = f" ({done.retries} retries)" if done.retries else ""
    if done.failure:
        return [f"{done.task.name}: FAILED{again}: {done.failure}"]
    return [f"{name} {scheme}: mean return {mean:.1f}{again}" for name, scheme, mean in done.means]
