"""Actors in int8 against the same actors in fp32 and fp16, and against torch's eager mode.

Each contender in a process of its own, one thread, pinned to the last core, in turns: `python benches/peers/actorq.py
[--rounds N] [--runs FOLDER]`.

1. Inference of one observation by a policy of three hidden layers of 2048: medians of CPU time, by runtime.
2. Bytes of a broadcast, and what making and taking one costs.
3. An actor's loop on a DeepMind Control task with that policy: environment, inference, and a pull every 100 steps, of a
   message that is there already; nobody learns, nothing is sent over Ray.
4. With --runs, records of `quarl actorq ... --precision fp32,fp16,int8`: the loop on Ray with its overhead, and whole
   runs with learning, each ratio with its ceiling.

Prints medians, and medians of the ratios within a round.
"""

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WIDTHS = (2048, 2048, 2048)
TASK = "cheetahrundmc"
CALLS, STEPS = 200, 600
INFERENCE = (("int8", "c"), ("fp16", "c"), ("fp32", "c"), ("int8", "litert"), ("fp32", "litert"), ("fp32", "torch"))
LOOPS = (("int8", "c"), ("fp16", "c"), ("fp32", "c"), ("fp32", "torch"))
TARGETS = {("inference", "fp32", "c"): 2.5, ("inference", "fp32", "torch"): 2.5, ("loop", "fp32", "c"): 1.5}


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


def time_inference(precision: str, runtime: str) -> float:
    """Microseconds of CPU time, median of `CALLS`."""
    from quarl_bench.actorq.acting.inference import RUNTIMES
    from quarl_bench.actorq.message import build, deserialize

    message, states = prepare(choose(precision, runtime))
    inference = RUNTIMES[runtime]()
    inference.load(build(deserialize(message)))
    times = []
    for index in range(CALLS + 20):
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


def time_loop(precision: str, runtime: str) -> float:
    """Microseconds of CPU time per step."""
    from quarl_bench.actorq.acting.actor import play
    from quarl_bench.actorq.acting.task import open_task

    settings = choose(precision, runtime)
    message, _ = prepare(settings)
    task = open_task(settings)
    play(settings, task, 0, 0, Discarding(message), 150)
    report = play(settings, task, 0, 1, Discarding(message), STEPS)
    return 1e6 * sum(report["breakdown"]["cpu"].values()) / STEPS


MEASURES = {"inference": time_inference, "loop": time_loop}


def compare(measure: str, contenders: tuple[tuple[str, str], ...], rounds: int) -> None:
    """Time the contenders in turns; int8 of the C runtime against every other."""
    times: dict[tuple[str, str], list[float]] = {contender: [] for contender in contenders}
    for _ in range(rounds):
        for contender, values in times.items():
            command = [sys.executable, __file__, "--only", measure, *contender]
            values.append(float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
    for (precision, runtime), values in times.items():
        ours = times["int8", runtime if ("int8", runtime) in times else "c"]
        ratio = statistics.median(other / own for own, other in zip(ours, values, strict=True))
        target = TARGETS.get((measure, precision, runtime))
        text = "" if precision == "int8" else f"  int8 is {ratio:.2f}x as fast"
        text += "" if target is None else f", target at least {target}x"
        print(f"  {precision} {runtime:<7}{statistics.median(values):>9.1f} us{text}")


def compare_messages() -> None:
    """Bytes and CPU milliseconds of one broadcast, by precision."""
    from quarl_bench.actorq.acting.inference import RUNTIMES
    from quarl_bench.actorq.message import build, deserialize

    base = 0
    for precision in ("fp32", "fp16", "int8"):
        settings = choose(precision, "c")
        prepare(settings)
        times = [time.process_time()]
        message, _ = prepare(settings)
        times.append(time.process_time())
        broadcast = build(deserialize(message))
        inference = RUNTIMES["c"]()
        inference.load(broadcast)
        times.append(time.process_time())
        base = base or len(message)
        made, taken = (1e3 * (after - before) for before, after in itertools.pairwise(times))
        print(f"  {precision}: {len(message):>11,} bytes, {len(message) / base:.4f}x; a fresh policy and its message "
              f"{made:.0f} ms, deserialize and load {taken:.2f} ms")  # fmt: skip


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


def main() -> None:
    """Compare, and say how busy the machine was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    parser.add_argument("--runs", type=Path, help="folder of runs. Default: none.")
    parser.add_argument("--only", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    if options.only:
        measure, precision, runtime = options.only
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        print(MEASURES[measure](precision, runtime))
        return
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.rounds} rounds")
    print(f"inference, {'-'.join(map(str, WIDTHS))}, one observation, CPU time")
    compare("inference", INFERENCE, options.rounds)
    print("a broadcast")
    compare_messages()
    print(f"an actor's loop on {TASK}, a pull every 100 steps, CPU time per step")
    compare("loop", LOOPS, options.rounds)
    if options.runs:
        print(f"runs on Ray in {options.runs}")
        show_runs(options.runs)
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
