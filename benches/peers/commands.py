"""What people wait for: `quarl check` and `quarl evaluate`, with imports and compilers, from the command to its end.

*Cold* begins with an empty cache, *warm* has the returns in it. Commands use all cores, so that there are two numbers:
seconds of wall clock, which other load disturbs, and of CPU time. Nobody else is compared.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from turns import ContenderFailed, Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest

BASELINES = Path(__file__).parents[2] / "baselines" / "policies"
POLICIES = ("ppo-cartpole-seed0", "sac-halfcheetahv4-lqcc-seed0")
COMMANDS = {"check, cold": ("check",), "check, warm": ("check",), "evaluate": ("evaluate", "--episodes", "100")}
VERDICTS = (0, 1, 3)  # exit codes of a command that came to its end


def time_command(arguments: tuple[str, ...], cache: Path) -> tuple[float, float]:
    """Seconds of wall clock and of CPU time."""
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "quarl_bench.cli", *arguments]
    done = subprocess.run(command, env=os.environ | {"QUARL_CACHE_DIR": str(cache)}, check=False, capture_output=True)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in VERDICTS:
        raise ContenderFailed(f"{arguments[0]} ended with exit code {done.returncode}: {done.stderr.decode()}")
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def time_commands(policy: str) -> dict[str, tuple[float, float]]:
    """The same of every command in turn: what is warm finds what was cold."""
    with tempfile.TemporaryDirectory() as cache:
        return {
            name: time_command((command, str(BASELINES / policy), *more), Path(cache))
            for name, (command, *more) in COMMANDS.items()
        }


def compare(turns: Turns) -> Iterator[Contest]:
    """Of each policy, the commands in turns."""
    for policy in POLICIES[:1] if turns.options.quick else POLICIES:
        rounds = turns.recall(partial(time_commands, policy), policy)
        taken = {name: [each[name] for each in rounds] for name in COMMANDS}
        yield Contest(policy, "s of wall clock", pick(taken))
        yield Contest(policy, "s of CPU time", pick(taken, 1))


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3))
