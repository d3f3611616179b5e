"""DQN's training step in half precision: this package against fp32 as stable-baselines3 has it, and against a good one.

Policies A, B and C of QuaRL's Table 5 by our reading (quarl_bench/training/sb3/scaled_cnn.py), divided by
`--divisor`. In blocks, in turns, on one thread:

python benches/peers/mixed.py [--device cpu|cuda] [--blocks N] [--divisor N]

"fp32" is stable-baselines3 on stock kernels, "lean" the same in fp32 with images kept as bytes in channels-last order
and, on a processor, linear layers in oneDNN. Prints medians with their standard errors, steps of Pong per second end to
end, and single products; says so when other processes disturbed the times.
"""

import argparse
import statistics

from quarl_bench.judging.times.step_times import explain_kernels, mean_speedup
from quarl_bench.training.recipes import FP32
from quarl_bench.training.sb3.scaled_cnn import PAPER
from quarl_bench.training.sb3.step_times import (
    CONTENDERS,
    DIVISORS,
    LEAN,
    StepPlan,
    StepTimes,
    find_error,
    measure_step_times,
)

HALVES = 2  # contenders behind the two in fp32


def show(times: StepTimes) -> None:
    """Print steps and rates of every size, gains with 90% limits, and single products."""
    print(f"{times.machine}, {times.device}, torch {times.versions['torch']}, sizes divided by {times.divisor}")
    for size in PAPER:
        for name in CONTENDERS[times.device]:
            seconds, rates = times.steps[f"{size}-{name}"], times.rates.get(f"{size}-{name}")
            rate = f"{statistics.median(rates):>9.1f} steps/s" if rates else ""
            milliseconds = f"{1e3 * statistics.median(seconds):>9.2f} +- {1e3 * find_error(seconds):<6.2f} ms"
            print(f"  {size.upper()} {name:<5}{milliseconds}{rate}")
        for name in CONTENDERS[times.device][HALVES:]:
            gains = (mean_speedup(times.list_gains(size, name, base)) for base in (FP32, LEAN))
            texts = [f"{g.estimate:.2f}x [{g.low:.2f}, {g.high:.2f}]" for g in gains]
            print(f"  {size.upper()} {name} is {texts[0]} over {FP32}, {texts[1]} over {LEAN}")
    for name in CONTENDERS[times.device][HALVES:]:
        print(f"  {explain_kernels(times, name)}")
    for fault in times.faults:
        print(f"  void: {fault}")


def main() -> None:
    """Time one device."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=CONTENDERS, default="cpu", help="Default: cpu.")
    parser.add_argument("--blocks", type=int, default=StepPlan.blocks, help=f"Default: {StepPlan.blocks}.")
    parser.add_argument("--divisor", type=int, help=f"Of the paper's sizes. Default: {DIVISORS}.")
    options = parser.parse_args()
    plan = StepPlan(blocks=options.blocks, divisor=options.divisor or DIVISORS[options.device])
    show(measure_step_times(options.device, plan, lambda key: print(f"  {key}", end="\r", flush=True)))


if __name__ == "__main__":
    main()
