"""How late an actor's weights are, and what that costs: DQN on CartPole by actors, update period and precision.

Every round is the sweep of docs/actorq.md, all of its runs anew with seed 0. It takes all cores, and rates are of wall
clock. Nobody else is compared.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turns import ContenderFailed, Script, Turns, main

from quarl_bench.actorq.record import RECORD, read_acting, read_record
from quarl_bench.judging.times.contest import Contest

PRECISIONS, PERIODS, ACTORS = ("fp32", "int8"), (10, 100, 1000), (1, 2)
STEPS, QUICK = 20_000, 2_000
COLUMNS: dict[tuple[str, str], Callable[[dict[str, Any]], float]] = {  # by name and unit, what a run's record says
    ("steps", "per second"): lambda record: record["steps"] / record["elapsed"],
    ("a pull", "us per step"): lambda record: read_acting(record).per_step()["pull"],
    ("weights behind the learner's", "updates"): lambda record: record["drift"]["staleness"],
    ("acts as the learner does now", "share of states"): lambda record: record["drift"]["agreement"],
}


def sweep(*, quick: bool) -> dict[tuple[int, int], dict[str, Any]]:
    """By update period and actors, the record of each precision."""
    periods, actors = (PERIODS[:1], ACTORS[:1]) if quick else (PERIODS, ACTORS)
    lists = {"--actors": actors, "--update-period": periods, "--precision": PRECISIONS}
    told = [word for name, values in lists.items() for word in (name, ",".join(map(str, values)))]
    with tempfile.TemporaryDirectory() as folder:
        command = ["actorq", "dqn", "cartpole", "--steps", str(QUICK if quick else STEPS), *told, "--output", folder]
        done = subprocess.run([sys.executable, "-m", "quarl_bench.cli", *command], check=False, stdout=sys.stderr)
        if done.returncode:
            raise ContenderFailed(f"quarl actorq ended with exit code {done.returncode}")
        found: dict[tuple[int, int], dict[str, Any]] = {}
        for path in sorted(Path(folder).glob(f"*/{RECORD}")):
            record = read_record(path)
            settings = record["settings"]
            found.setdefault((settings["update_period"], settings["actors"]), {})[settings["precision"]] = record
    return found


def compare(turns: Turns) -> Iterator[Contest]:
    """Of each update period and number of actors, both precisions."""
    rounds = [sweep(quick=turns.options.quick) for _ in range(turns.options.rounds)]
    for period, actors in sorted(rounds[0], key=lambda place: (place[1], place[0])):
        for (name, unit), read in COLUMNS.items():
            taken = {each: tuple(float(read(done[period, actors][each])) for done in rounds) for each in PRECISIONS}
            title = f"every {period:,} steps, {actors} actor{'' if actors == 1 else 's'}: {name}"
            yield Contest(title, unit, taken, rate=unit != "us per step")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3))
