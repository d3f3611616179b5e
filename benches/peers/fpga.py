"""Generating and simulating LQCC's five selected policies, timed: from integers to bit-exact cycles.

For each: exploring the foldings by formula, writing the fastest design that should fit an XC7A15T, compiling it with
Verilator, and simulating 10,000 observations that all have to give the golden model's actions. Random weights, nothing
from a cache, no synthesis: `python benches/peers/fpga.py [--vectors N]`. Prints seconds of each part, the total, and
the processor time in it, which other load disturbs less.
"""

import argparse
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from quarl_bench.backends.fpga.explore.explorer import choose, explore
from quarl_bench.backends.fpga.explore.part import find_part
from quarl_bench.backends.fpga.rtl.design import write_design
from quarl_bench.backends.fpga.rtl.stage import split
from quarl_bench.backends.fpga.tools.simulation import Simulation, check
from quarl_bench.backends.fpga.vectors import draw_inputs
from quarl_bench.papers.lqcc.hardware.architectures import ARCHITECTURES, draw_net

SELECTED = ("halfcheetah", "walker2d", "ant", "humanoid", "hopper")
PART = find_part("xc7a15t")
TARGET = 300.0  # seconds for all five


def time_design(name: str, vectors: int, folder: Path) -> float:
    """Seconds from drawn integers to checked actions; prints a row."""
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
    run = check(simulation, design, q, expected, folder / "cache")
    marks.append(time.perf_counter())
    parts = "".join(f"{end - begin:>10.1f}" for begin, end in pairwise(marks))
    print(f"{name:<12}{parts}{marks[-1] - marks[0]:>10.1f}{run.latency[0]:>10}", flush=True)
    return marks[-1] - marks[0]


def main() -> None:
    """Time all five."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=10_000, help="observations of each design. Default: 10000.")
    options = parser.parse_args()
    print(f"{'seconds':<12}{'explore':>10}{'write':>10}{'compile':>10}{'simulate':>10}{'total':>10}{'cycles':>10}")
    with tempfile.TemporaryDirectory() as scratch:
        total = sum(time_design(name, options.vectors, Path(scratch)) for name in SELECTED)
    busy = sum(os.times()[:4])  # with the compiler and the simulations
    print(f"{total:.1f} s for all five, target {TARGET:g} s; {busy:.1f} s of processor time, imports included")
    print(f"{options.vectors:,} observations each, 0 mismatches")


if __name__ == "__main__":
    main()
