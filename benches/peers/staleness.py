"""How late an actor's weights are, and what that costs: DQN on CartPole by actors, update period and precision.

Every round is the sweep of docs/actorq.md, all of its runs anew with seed 0. It takes all cores, and rates are of wall
clock. Nobody else is compared.
"""

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
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


def sweep(*, quick: bool) -> dict[str, dict[str, list[float]]]:
    """By update period and actors in words, the number of every column for each precision."""
    periods, actors = (PERIODS[:1], ACTORS[:1]) if quick else (PERIODS, ACTORS)
    lists = {"--actors": actors, "--update-period": periods, "--precision": PRECISIONS}
    told = [word for name, values in lists.items() for word in (name, ",".join(map(str, values)))]
    found: dict[str, dict[str, list[float]]] = {
        f"every {period:,} steps, {count} actor{'' if count == 1 else 's'}": {}
        for count, period in itertools.product(actors, periods)
    }
    with tempfile.TemporaryDirectory() as folder:
        command = ["actorq", "dqn", "cartpole", "--steps", str(QUICK if quick else STEPS), *told, "--output", folder]
        done = subprocess.run([sys.executable, "-m", "quarl_bench.cli", *command], check=False, stdout=sys.stderr)
        if done.returncode:
            raise ContenderFailed(f"quarl actorq ended with exit code {done.returncode}")
        for path in Path(folder).glob(f"*/{RECORD}"):
            record = read_record(path)
            period, count = (record["settings"][name] for name in ("update_period", "actors"))
            place = f"every {period:,} steps, {count} actor{'' if count == 1 else 's'}"
            found[place][record["settings"]["precision"]] = [float(read(record)) for read in COLUMNS.values()]
    return found


def compare(turns: Turns) -> Iterator[Contest]:
    """Of each update period and number of actors, both precisions."""
    rounds = turns.recall(partial(sweep, quick=turns.options.quick))
    for place in rounds[0]:
        for column, (name, unit) in enumerate(COLUMNS):
            taken = {each: tuple(done[place][each][column] for done in rounds) for each in PRECISIONS}
            yield Contest(f"{place}: {name}", unit, taken, rate=unit != "us per step")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3))
