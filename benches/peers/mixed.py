"""DQN's training step in half precision: this package against fp32 as stable-baselines3 has it, and against a good one.

Policies A, B and C of QuaRL's Table 5 by our reading (quarl_bench/training/sb3/scaled_cnn.py), divided by
`--divisor`. In blocks, in turns, on one thread of one process.

"fp32" is stable-baselines3 on stock kernels, "lean" the same in fp32 with images kept as bytes in channels-last order
and, on a processor, linear layers in oneDNN. Steps of training, steps of Pong end to end, and single products.
"""

import argparse
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from turns import Script, Turns, main

from quarl_bench.judging.times.contest import Contest, Pair

HALVES = 2  # contenders behind the two in fp32
QUICK = {"seconds": 0.02, "calls": 1, "steps": 0, "sizes": ("a",), "divisor": 16}


def compare(turns: Turns) -> Iterator[Contest]:
    """Of one device."""
    from quarl_bench.training.sb3.scaled_cnn import PAPER
    from quarl_bench.training.sb3.step_times import CONTENDERS, DIVISORS, StepPlan, measure_step_times

    device: str = turns.options.device
    changes: Mapping[str, Any] = QUICK if turns.options.quick else {"divisor": DIVISORS[device]}
    if turns.options.divisor:
        changes = {**changes, "divisor": turns.options.divisor}
    plan = StepPlan(blocks=turns.options.rounds, **changes)
    times = measure_step_times(device, plan)
    note = "; ".join((f"{times.device}, sizes divided by {times.divisor}", *(f"void: {each}" for each in times.faults)))
    fp32, halves = CONTENDERS[device][:HALVES], CONTENDERS[device][HALVES:]
    pairs = tuple(itertools.starmap(Pair, itertools.product(halves, fp32)))
    for size in filter(plan.sizes.__contains__, PAPER):
        keys = {name: f"{size}-{name}" for name in CONTENDERS[device]}
        steps = {name: tuple(1e3 * each for each in times.steps[key]) for name, key in keys.items()}
        yield Contest(f"{size.upper()}, a step of training", "ms", steps, pairs, note=note)
        if rates := {name: tuple(times.rates[key]) for name, key in keys.items() if key in times.rates}:
            yield Contest(f"{size.upper()}, training on Pong", "steps per second", rates, pairs, rate=True, note=note)
    products = {name: tuple(1e3 * each for each in values) for name, values in times.kernels.items()}
    yield Contest("products of matrices, by width and kernel", "ms", products, note=note)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="Default: cpu.")
    parser.add_argument("--divisor", type=int, help="Of the paper's sizes. Default: 8 on cpu, 1 on cuda.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 6, add_options=add_options))
