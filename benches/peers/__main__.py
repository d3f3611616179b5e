"""Every comparison with other libraries, one after the other, each kept as JSON as soon as it is done.

`python -m benches.peers` runs all that are installed and do not ask to be named; docs/speed.md is made of what they
leave (`python docs/scripts/generate.py`). Run it on an idle machine. A name that is not known, or whose library is
missing, is told before anything runs. What failed or was killed leaves what it had in FILE.json.part, from which the
same command goes on at the same commit, and no stored run is lost.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.system.atomic import open_folder
from quarl_bench.system.counts import read_positive
from quarl_bench.system.processor import lacks_bf16

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
STORED = "benches/peers/runs"
BF16 = "bf16 instructions"  # not emulated
SB3 = ("stable_baselines3", "sb3_contrib")


@dataclass(frozen=True)
class Entry:
    """A script with arguments, and how many minutes it takes on two idle cores.

    `needs` are modules, programs and instructions that it cannot do without; `named` keeps it from a run of all.
    """

    script: str
    minutes: float
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    named: bool = False

    def find_missing(self, packages: Path | None) -> list[str]:
        """Of its needs, those that are neither here nor below `packages`."""
        lacking = {BF16: lacks_bf16()}
        return [need for need in self.needs if lacking.get(need, not is_there(need, packages))]

    def describe(self) -> str:
        """The first line of what the script says of itself."""
        text = ast.get_docstring(ast.parse((HERE / f"{self.script}.py").read_text(encoding="utf-8"))) or ""
        return " ".join([text.partition("\n")[0], *self.arguments])


ENTRIES = {
    "collection": Entry("collection", 0.5),
    "commands": Entry("commands", 2.5, (*SB3, "mujoco", "ai_edge_litert", "cc")),
    "qat": Entry("qat", 4.5, SB3),
    "lqcc": Entry("lqcc", 2.5, SB3),
    "hopper": Entry("hopper", 2, (*SB3, "mujoco")),
    "actorq": Entry("actorq", 3, (*SB3, "dm_control", "ray", "ai_edge_litert", "cc")),
    "staleness": Entry("staleness", 10, ("ray", "cc"), named=True),
    "decisions": Entry("decisions", 5, ("ale_py", "cv2"), named=True),
    "broadcast": Entry("broadcast", 0.5, ("zstandard",)),
    "flight": Entry("flight", 0.5, ("PyFlyt", "numba")),
    "replay": Entry("replay", 1, ("cpprb",)),
    "deployment": Entry("deployment", 2, ("stable_baselines3", "ai_edge_litert", "onnxruntime", "cc", "make")),
    "mixed": Entry("mixed", 5, ("stable_baselines3", "ale_py", BF16), named=True),
    "training": Entry("training", 4, (*SB3, "ale_py", "cv2")),
    "training-lunarlander": Entry("training", 15, (*SB3, "Box2D"), ("--task", "lunarlander"), named=True),
    "evaluation": Entry("evaluation", 15, (*SB3, "ale_py", "cv2", "mujoco", "pybullet_envs_gymnasium")),
    "parts": Entry("parts", 2, (*SB3, "ale_py", "cv2", "mujoco", "pybullet_envs_gymnasium")),
    "fpga": Entry("fpga", 3, ("verilator",), named=True),
    "repair": Entry("repair", 5, (*SB3, "onnxruntime", "ai_edge_litert", "Box2D"), named=True),
}


def is_there(need: str, packages: Path | None) -> bool:
    """Whether a module or a program is installed, or a module's folder is below `packages`."""
    return bool(find_spec(need) or shutil.which(need) or (packages and (packages / need).is_dir()))


def choose(names: Sequence[str], packages: Path | None) -> tuple[dict[str, Entry], dict[str, list[str]]]:
    """Those to run, and those that a run of all leaves out with what they miss; SpecError where one was named."""
    if unknown := [name for name in names if name not in ENTRIES]:
        raise SpecError(f"nothing is called {', '.join(unknown)}; there are {', '.join(ENTRIES)}")
    wanted = names or [name for name, entry in ENTRIES.items() if not entry.named]
    missing = {name: lacks for name in dict.fromkeys(wanted) if (lacks := ENTRIES[name].find_missing(packages))}
    if names and missing:
        told = "; ".join(f"{name} needs {', '.join(lacks)}" for name, lacks in missing.items())
        raise SpecError(f"{told}; install it, or say where it is by --packages")
    return {name: ENTRIES[name] for name in dict.fromkeys(wanted) if name not in missing}, missing


def run_all(chosen: Mapping[str, Entry], told: Sequence[str], folder: Path | None) -> list[str]:
    """Run one after the other; the names of those that failed."""
    failed = []
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # the package of this checkout
    for number, (name, entry) in enumerate(chosen.items(), 1):
        place = f"[{number}/{len(chosen)}] {name}"
        print(f"{place}: {entry.describe()}", flush=True)
        output = ["--output", str(folder / f"{name}.json")] if folder else []
        command = [sys.executable, str(HERE / f"{entry.script}.py"), *entry.arguments, *told, *output]
        begin = time.monotonic()
        done = subprocess.run(command, check=False, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path})
        minutes, seconds = divmod(round(time.monotonic() - begin), 60)
        print(f"{place}: {'failed after' if done.returncode else 'done in'} {minutes}:{seconds:02}", flush=True)
        failed += [name] if done.returncode else []
    return failed


def list_entries(packages: Path | None) -> None:
    """Print a line for each: minutes, name, what it compares, what it misses here."""
    for name, entry in ENTRIES.items():
        missing = entry.find_missing(packages)
        lacks = f" (needs {', '.join(missing)})" if missing else ""
        print(
            f"{entry.minutes:>5g} min  {name:<21}{'has to be named; ' if entry.named else ''}{entry.describe()}{lacks}"
        )


def read_options() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benches.peers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run. Default: all that need no naming.")
    parser.add_argument("--rounds", type=partial(read_positive, most=1000), metavar="N", help="Default: each its own.")
    parser.add_argument(
        "--quick", action="store_true", help="the smallest sizes, to see that all works; kept only by --output."
    )
    parser.add_argument("--output", type=Path, metavar="FOLDER", help=f"Default: {STORED}.")
    parser.add_argument("--packages", type=Path, metavar="DIR", help="a folder of each library that is kept apart.")
    parser.add_argument("--list", action="store_true", help="say what there is, and how long it takes.")
    return parser.parse_args()


def main() -> None:
    """Exit code 2 for bad input, 1 where something failed."""
    options = read_options()
    if options.list:
        list_entries(options.packages)
        return
    try:
        chosen, missing = choose(options.names, options.packages)
        folder = options.output or (None if options.quick else ROOT / STORED)
        folder = folder and open_folder(folder)
    except QuarlError as error:
        sys.stderr.write(f"benches.peers: {error}\n")
        sys.exit(2)
    for name, lacks in missing.items():
        sys.stderr.write(f"{name} is left out: it needs {', '.join(lacks)}\n")
    told = ["--rounds", str(options.rounds)] if options.rounds else []
    told += ["--quick"] if options.quick else []
    told += ["--packages", str(options.packages)] if options.packages else []
    try:
        failed = run_all(chosen, told, folder)
    except KeyboardInterrupt:
        sys.exit(130)
    if failed:
        sys.stderr.write(f"benches.peers: failed: {', '.join(failed)}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
