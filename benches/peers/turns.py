"""What the scripts of this folder share: contenders take turns, and what they gave is printed and written.

A contender is measured in a process of its own, on one core with one thread, and prints its numbers last. Libraries
that ask for other versions than ours stay apart: `--packages DIR` has a folder for each, named after its module, as of
`pip install --target DIR/flashbax flashbax`.
"""

import argparse
import importlib.util
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from journal import Journal

from quarl_bench.errors import QuarlError
from quarl_bench.judging.times.contest import Contest
from quarl_bench.report.peers import PeerRun, write_run
from quarl_bench.system.atomic import open_file
from quarl_bench.system.counts import read_positive
from quarl_bench.system.machine import describe_machine, describe_versions, read_own_commit
from quarl_bench.views.table import format_number

STORED = "benches/peers/runs"  # changes there are no changes of the code
ALONE = {  # one thread, of whatever computes
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
LIBRARIES = (
    "torch", "numpy", "gymnasium", "stable-baselines3", "sb3-contrib", "mujoco", "ale-py", "pybullet", "dm-control",
    "ray", "onnxruntime", "ai-edge-litert", "ai-edge-quantizer", "nncf", "torchao", "brevitas", "sbx-rl", "jax",
    "cpprb", "flashbax", "zstandard", "pytest",
)  # fmt: skip
INTERRUPTED = 130  # exit code
Taken = dict[str, tuple[tuple[float, ...], ...]]  # by contender, round by round, the numbers that it printed


class ContenderFailed(QuarlError):
    """A contender's process ended without its numbers."""


@dataclass(frozen=True)
class Turns:
    """How a script's contenders are run: `options` are those of its command, its own among them."""

    script: Path
    options: Any
    journal: Journal
    needs: Mapping[str, str] = field(default_factory=dict)  # of contenders, the module that each cannot do without

    @property
    def absent(self) -> dict[str, str]:
        """Contenders that cannot run here, and the modules that they would need."""
        return find_absent(self.needs, self.options.packages)

    def recall(self, measure: Callable[[], Any], *key: object) -> list[Any]:
        """What `measure` gives in each round, in the types of JSON; `key` tells it from other things of the script."""
        return [self.journal.recall(measure, *key, number) for number in range(self.options.rounds)]

    def repeat(self, measures: Mapping[str, Callable[[], Sequence[float]]], *key: object) -> Taken:
        """The numbers of every contender, in turns; `key` tells them from others of the script."""
        rounds = [
            {name: tuple(self.journal.recall(measure, *key, name, number)) for name, measure in measures.items()}
            for number in range(self.options.rounds)
        ]
        return {name: tuple(each[name] for each in rounds) for name in measures}

    def take(self, contenders: Iterable[str], *arguments: object) -> Taken:
        """The numbers of those that are not absent, in turns; `arguments` are of the script's own options."""
        absent = self.absent
        there = {name: partial(self._measure, name, *arguments) for name in contenders if name not in absent}
        return self.repeat(there, *map(str, arguments))

    def _measure(self, contender: str, *arguments: object) -> tuple[float, ...]:
        """What one process prints."""
        quick = ["--quick"] if self.options.quick else []
        command = [sys.executable, str(self.script), *map(str, arguments), *quick, "--only", contender]
        apart = find_apart(self.needs.get(contender, ""), self.options.packages)
        path = os.pathsep.join(filter(None, [apart, os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=False, env=os.environ | ALONE | {"PYTHONPATH": path}
        )
        if done.returncode:
            raise ContenderFailed(f"{contender} gave no numbers, exit code {done.returncode}")
        return tuple(map(float, done.stdout.splitlines()[-1].split()))  # Bullet says before when it was built


@dataclass(frozen=True)
class Script:
    """A script of this folder: what it compares, and how one contender is measured in its own process.

    `compare` yields a contest as soon as it is measured; `measure` gets the contender's name and the options.
    """

    file: str
    about: str | None
    compare: Callable[[Turns], Iterator[Contest]]
    rounds: int
    measure: Callable[[str, Any], Sequence[float]] | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None


def pick(taken: Mapping[str, Sequence[Sequence[float]]], column: int = 0) -> dict[str, tuple[float, ...]]:
    """One of the numbers that contenders printed, as `Contest.rounds`."""
    return {name: tuple(numbers[column] for numbers in rounds) for name, rounds in taken.items()}


def is_installed(module: str, packages: Path | None) -> bool:
    """Here, or in its folder below `packages`."""
    return bool(find_apart(module, packages)) or importlib.util.find_spec(module) is not None


def find_apart(module: str, packages: Path | None) -> str:
    """The folder of a module below `packages`; empty where there is none."""
    return str((packages / module).absolute()) if packages and module and (packages / module).is_dir() else ""


def read_packages(text: str) -> Path:
    """A folder; argparse reports anything else."""
    if not (path := Path(text)).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no folder")
    return path


def show(contest: Contest) -> None:
    """Print medians with their ranges, and ratios beside their targets."""
    print(f"{contest.name}, {contest.unit}{f': {contest.note}' if contest.note else ''}")
    wide = max(map(len, contest.rounds))
    for name, numbers in contest.rounds.items():
        middle, least, most = map(format_number, (statistics.median(numbers), min(numbers), max(numbers)))
        print(f"  {name:<{wide}}  {middle:>10}  ({least} to {most})")
    for pair in contest.pairs:
        target = "" if pair.target is None else f", target {pair.target:.3g}x"
        print(f"  {pair.ours} against {pair.theirs}: {contest.find_ratio(pair)}{target}")
    sys.stdout.flush()


def make_places() -> argparse.ArgumentParser:
    """Options that say where things are on one machine, which no record tells."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--output", type=Path, metavar="FILE", help="JSON, kept contest by contest. Default: none.")
    parser.add_argument("--packages", type=read_packages, metavar="DIR", help="other libraries, apart. Default: none.")
    return parser


def main(script: Script) -> None:
    """The command of a script; bad input and contenders that fail are one line, exit code 2."""
    parser = argparse.ArgumentParser(
        description=script.about, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        parents=[make_places()],
    )  # fmt: skip
    rounds = f"Default: {script.rounds}."
    parser.add_argument("--rounds", type=partial(read_positive, most=1000), metavar="N", help=rounds)
    parser.add_argument("--quick", action="store_true", help="one round of the smallest sizes, to see that all works.")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    script.add_options(parser)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else script.rounds)
    if script.measure is None:  # all is measured in this process, whose own libraries come first
        sys.path += filter(None, (find_apart(module, options.packages) for module in script.needs.values()))
    try:
        if options.only and script.measure:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
            print(*script.measure(options.only, options))
        else:
            compare(script, options)
    except QuarlError as error:
        sys.stderr.write(f"{Path(script.file).stem}: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def compare(script: Script, options: Any) -> None:
    """Print every contest as it comes. The file is replaced when all are done; until then, and if it never comes to
    that, what was measured lies beside it, and the same command goes on from there.
    """
    output: Path | None = options.output and open_file(options.output)
    begun = describe_start(script, options)
    for name, module in begun.absent.items():
        sys.stderr.write(f"{name} is left out: {module} is not installed\n")
    journal = Journal(output, begun)
    run = journal.run
    for contest in script.compare(Turns(Path(script.file), options, journal, script.needs)):
        show(contest)
        run = run.add(contest, *journal.read())
    print(f"others used {run.others:.2f} of {os.cpu_count()} cores meanwhile", flush=True)
    if output:
        write_run(output, run)
    journal.finish()


def describe_start(script: Script, options: Any) -> PeerRun:
    """The run before its first contest."""
    told = make_places().parse_known_args(sys.argv[1:])[1]
    return PeerRun(
        command=shlex.join(["python", f"benches/peers/{Path(script.file).name}", *told]),
        rounds=options.rounds,
        quick=options.quick,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        load=tuple(round(each, 2) for each in os.getloadavg()),
        machine=describe_machine(),
        versions=describe_versions(*LIBRARIES) | find_versions_apart(script.needs, options.packages),
        commit=read_own_commit(STORED),
        absent=find_absent(script.needs, options.packages),
    )


def find_absent(needs: Mapping[str, str], packages: Path | None) -> dict[str, str]:
    """Of contenders, those whose module is nowhere, and the module."""
    return {name: module for name, module in needs.items() if not is_installed(module, packages)}


def find_versions_apart(needs: Mapping[str, str], packages: Path | None) -> dict[str, str]:
    """Of the contenders' libraries that lie in folders of their own."""
    folders = [*filter(None, (find_apart(module, packages) for module in needs.values()))]
    found = {each.name.lower().replace("_", "-"): each.version for each in metadata.distributions(path=folders)}
    return {name: version for name, version in found.items() if name in LIBRARIES}
