"""A flight to one waypoint: this package's, which is PyFlyt's to the bit, against PyFlyt's own.

Random actions, the same for both. CPU time of a step and of a reset, behind a first flight, which compiles.
"""

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

TASK = "quadx1"
FLIGHTS, QUICK = 60, 2
CONTENDERS = ("quarl", "pyflyt")


def make_flight(name: str) -> tuple[Any, int]:
    """An environment with Gymnasium's two functions, and after how many steps a flight ends."""
    from quarl_bench.environments.flights import Flight
    from quarl_bench.environments.registry import find_environment, make_environment

    environment: Any
    environment, limit = make_environment(find_environment(TASK))
    while not isinstance(environment, Flight):
        environment = environment.env
    return environment if name == "quarl" else environment.env, limit


def measure(name: str, options: Any) -> tuple[float, float]:
    """Medians of microseconds of a step and of milliseconds of a reset."""
    from quarl_bench.environments.drone import hush

    flight, limit = make_flight(name)
    steps, resets = [], []
    for seed in range(1 + (QUICK if options.quick else FLIGHTS)):
        rng = np.random.default_rng(seed)
        begin = time.process_time()
        with hush():
            flight.reset(seed=seed)
        resets.append(1e3 * (time.process_time() - begin))
        ended, age = False, 0
        while not ended and age < limit:
            action = rng.uniform(flight.action_space.low, flight.action_space.high)
            begin = time.process_time()
            _, _, terminated, truncated, _ = flight.step(action)
            steps.append(1e6 * (time.process_time() - begin))
            ended, age = terminated or truncated, age + 1
        if not seed:
            steps, resets = [], []
    return statistics.median(steps), statistics.median(resets)


def compare(turns: Turns) -> Iterator[Contest]:
    """Steps and resets."""
    taken = turns.take(CONTENDERS)
    yield Contest("a step", "us of CPU time", pick(taken), (Pair(*CONTENDERS),))
    yield Contest("a reset", "ms of CPU time", pick(taken, 1), (Pair(*CONTENDERS),))


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure))
