"""Generating and simulating LQCC's five selected policies, timed: from integers to bit-exact cycles.

For each: exploring the foldings by formula, writing the fastest design that should fit an XC7A15T, compiling it with
Verilator, and simulating 10,000 observations that all have to give the golden model's actions. Random weights, nothing
from a cache, no synthesis. Seconds of wall clock, because the compiler uses all cores.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

from turns import Script, Turns, main

from quarl_bench.backends.fpga.explore.explorer import choose, explore
from quarl_bench.backends.fpga.explore.part import find_part
from quarl_bench.backends.fpga.rtl.design import write_design
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.fpga.tools.simulation import Simulation, check
from quarl_bench.backends.fpga.vectors import draw_inputs
from quarl_bench.judging.times.contest import Contest
from quarl_bench.papers.lqcc.hardware.architectures import ARCHITECTURES, draw_net
from quarl_bench.system.counts import read_positive

SELECTED = ("halfcheetah", "walker2d", "ant", "humanoid", "hopper")
PART = find_part("xc7a15t")
TARGET = 300  # seconds for all five
PARTS = ("explore", "write", "compile", "simulate")
VECTORS, QUICK = 10_000, 100


def time_design(name: str, vectors: int) -> tuple[float, ...]:
    """Seconds of every part, from drawn integers to checked actions, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return time_parts(name, vectors, Path(folder))


def time_parts(name: str, vectors: int, folder: Path) -> tuple[float, ...]:
    """The same in an empty folder."""
    architecture = ARCHITECTURES[name]
    net = draw_net(architecture)
    stages = split(net)
    q = draw_inputs(stages, vectors)
    expected = net.run(q)
    marks = [time.perf_counter()]
    plan = choose(explore(stages, PART, architecture.in_lanes), PART, lambda _: True).plan
    marks.append(time.perf_counter())
    design = write_design(plan, folder / name)
    marks.append(time.perf_counter())
    simulation = Simulation(design, folder / "cache")
    marks.append(time.perf_counter())
    check(simulation, design, q, expected, folder / "cache")
    marks.append(time.perf_counter())
    return tuple(end - begin for begin, end in pairwise(marks))


def compare(turns: Turns) -> Iterator[Contest]:
    """Every design, and all together."""
    quick = turns.options.quick
    vectors = turns.options.vectors or (QUICK if quick else VECTORS)
    totals = [0.0] * turns.options.rounds
    for name in ("hopper",) if quick else SELECTED:
        taken = turns.recall(partial(time_design, name, vectors), name)
        totals = [before + sum(each) for before, each in zip(totals, taken, strict=True)]
        parts = {part: tuple(each[column] for each in taken) for column, part in enumerate(PARTS)}
        yield Contest(name, "s", parts, note=f"{vectors:,} observations, 0 mismatches")
    yield Contest("all together", "s", {"quarl": tuple(totals)}, note=f"target {TARGET} s for five")


def add_options(parser: argparse.ArgumentParser) -> None:
    """How much is simulated."""
    parser.add_argument("--vectors", type=read_positive, help=f"observations of each design. Default: {VECTORS}.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 1, add_options=add_options))
