"""Actors in int8 against the same actors in fp32 and fp16, and against torch's eager mode.

1. Inference of one observation by a policy of three hidden layers of 2048: medians of CPU time, by runtime.
2. Bytes of a broadcast, and what making and taking one costs.
3. An actor's loop on a DeepMind Control task with that policy: environment, inference, and a pull every 100 steps, of a
   message that is there already; nobody learns, nothing is sent over Ray.
4. With --runs, records of `quarl actorq ... --precision fp32,fp16,int8`: the loop on Ray with its overhead, and whole
   runs with learning, each ratio with its ceiling. They are printed only.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

WIDTHS = (2048, 2048, 2048)
TASK = "cheetahrundmc"
CALLS, STEPS, QUICK = 200, 600, 20
INFERENCE = ("int8 c", "fp16 c", "fp32 c", "int8 litert", "fp32 litert", "fp32 torch")
LOOPS = ("int8 c", "fp16 c", "fp32 c", "fp32 torch")
INFERENCE_PAIRS = (
    Pair("int8 c", "fp16 c"), Pair("int8 c", "fp32 c", 2.5), Pair("int8 c", "fp32 torch", 2.5),
    Pair("int8 litert", "fp32 litert"),
)  # fmt: skip
LOOP_PAIRS = (Pair("int8 c", "fp16 c"), Pair("int8 c", "fp32 c", 1.5), Pair("int8 c", "fp32 torch"))


def choose(precision: str, runtime: str) -> Any:
    """The settings of a contender."""
    from quarl_bench.actorq.settings import choose_settings

    return choose_settings("d4pg", TASK, widths=WIDTHS, precision=precision, runtime=runtime)


def prepare(settings: Any, version: int = 0) -> tuple[Any, Any]:
    """A fresh policy's broadcast, and states of its task."""
    import numpy as np

    from quarl_bench.actorq.acting.task import open_task
    from quarl_bench.actorq.learning.agents import make_agent
    from quarl_bench.actorq.message import encode

    task = open_task(settings)
    states = np.random.default_rng(0).standard_normal((256, task.inputs)).astype(np.float32)
    policy = make_agent(settings, task).export()
    return encode(policy, version, shipped=settings.shipped, precision=settings.precision, states=states), states


def time_inference(precision: str, runtime: str, calls: int) -> float:
    """Microseconds of CPU time, median of so many calls."""
    from quarl_bench.actorq.acting.inference import RUNTIMES
    from quarl_bench.actorq.message import build, deserialize

    message, states = prepare(choose(precision, runtime))
    inference = RUNTIMES[runtime]()
    inference.load(build(deserialize(message)))
    times = []
    for index in range(calls + 20):
        begin = time.thread_time_ns()
        inference.forward(states[index % len(states)][None])
        times.append((time.thread_time_ns() - begin) / 1e3)
    return statistics.median(times[20:])


class Discarding:
    """Ports of an actor that nobody listens to: every pull finds a message."""

    def __init__(self, message: Any) -> None:
        self._message = message

    def count_steps(self) -> int:
        """None before."""
        return 0

    def pull(self, _: int) -> list[Any]:
        """The same message."""
        return [self._message]

    def wait(self) -> bool:
        """Never: nothing is to come."""
        return True

    def send(self, chunk: Any) -> None:
        """Nowhere."""


def time_loop(precision: str, runtime: str, steps: int) -> float:
    """Microseconds of CPU time per step."""
    from quarl_bench.actorq.acting.actor import play
    from quarl_bench.actorq.acting.task import open_task

    settings = choose(precision, runtime)
    message, _ = prepare(settings)
    task = open_task(settings)
    play(settings, task, 0, 0, Discarding(message), 150)
    report = play(settings, task, 0, 1, Discarding(message), steps)
    return float(1e6 * sum(report["breakdown"]["cpu"].values()) / steps)


def time_message(precision: str) -> tuple[float, float, float]:
    """Milliseconds of CPU time to make a fresh policy and its message, and to load one; bytes."""
    from quarl_bench.actorq.acting.inference import RUNTIMES
    from quarl_bench.actorq.message import build, deserialize

    settings = choose(precision, "c")
    begin = time.process_time()
    message, _ = prepare(settings)
    made = time.process_time()
    RUNTIMES["c"]().load(build(deserialize(message)))
    return 1e3 * (made - begin), 1e3 * (time.process_time() - made), len(message)


def show_runs(folder: Path) -> None:
    """Records of whole runs: ratios with their ceilings, and the engine's share of an actor's step."""
    from quarl_bench.actorq.breakdown import RAY, find_share
    from quarl_bench.actorq.comparison import compare_runs, list_breakdown, list_summary, name_run
    from quarl_bench.actorq.record import read_acting
    from quarl_bench.papers.actorq.sentences import read_records
    from quarl_bench.views.text import format_table

    rows = compare_runs(read_records(folder))
    for task, group in itertools.groupby(rows, lambda row: f"{row.settings['algo']} {row.settings['environment']}"):
        ours = list(group)
        print(task, *format_table(list_summary(ours)), *format_table(list_breakdown(ours, "cpu")), sep="\n")
        for row in ours:
            per_step = read_acting(row.record).per_step("cpu")
            acting = {stage: value for stage, value in per_step.items() if stage != "wait"}
            print(f"  {name_run(row)}: Ray takes {find_share(acting, RAY):.1%} of a step's CPU time, under a load of "
                  f"{row.record['load']:.1f}")  # fmt: skip


def measure(name: str, options: Any) -> tuple[float]:
    """Of one contender, by one of the two measures."""
    import torch

    torch.set_num_threads(1)
    precision, runtime = name.split()
    if options.loop:
        return (time_loop(precision, runtime, QUICK if options.quick else STEPS),)
    return (time_inference(precision, runtime, QUICK if options.quick else CALLS),)


def compare(turns: Turns) -> Iterator[Contest]:
    """Inference, broadcasts, loops; then the runs that are there."""
    import torch

    torch.set_num_threads(1)
    name = f"{'-'.join(map(str, WIDTHS))}, one observation"
    yield Contest(name, "us of CPU time", pick(turns.take(INFERENCE)), INFERENCE_PAIRS)
    precisions = ("fp32", "fp16", "int8")
    for precision in precisions:
        time_message(precision)  # what is compiled once is
    taken = turns.repeat({each: partial(time_message, each) for each in precisions}, "message")
    for column, (what, unit) in enumerate((("made, with a policy", "CPU ms"), ("taken", "CPU ms"), ("sent", "bytes"))):
        yield Contest(f"a broadcast {what}", unit, pick(taken, column))
    loops = pick(turns.take(LOOPS, "--loop"))
    yield Contest(f"a step of an actor's loop on {TASK}", "us of CPU time", loops, LOOP_PAIRS)
    if turns.options.runs:
        show_runs(turns.options.runs)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is printed besides, and which measure a contender takes."""
    parser.add_argument("--runs", type=Path, help="folder of runs. Default: none.")
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, add_options=add_options))
