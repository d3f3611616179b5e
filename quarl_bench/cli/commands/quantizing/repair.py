"""`quarl repair`: fewer bits that keep the return, found without training where that will do."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command, read_path
from quarl_bench.cli.commands.playing.check import CODES
from quarl_bench.cli.opening import open_task, use_one_thread
from quarl_bench.cli.printing import print_result
from quarl_bench.evaluation.profiles import EPISODES
from quarl_bench.judging.outcomes import MARGIN
from quarl_bench.system.atomic import check_replaceable
from quarl_bench.system.bars import open_clock
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.checking.subject import Subject
    from quarl_bench.repairing.plan import Plan, Repair
    from quarl_bench.repairing.workbench import Attempt

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
EXIT_CODES = (
    "exit codes: 0 what was chosen is supported, 1 it is refuted, 3 not decided, 2 wrong input (one line on stderr), "
    "130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl repair`: a policy, the bits it is to run in, and where the repaired policy goes."""
    command = new_command(commands, "repair", run,
        "quarl repair CartPole-v1.zip --normalization none --scheme int8 --output repaired", EXIT_CODES)  # fmt: skip
    add_task(command)
    command.add_argument(
        "--scheme",
        default="int8",
        help="int2..int8; options of the scheme are what repair searches for. Default: int8.",
    )
    command.add_argument(
        "--margin", type=float, default=MARGIN, help=f"share of the return that may be lost. Default: {MARGIN}."
    )
    command.add_argument(
        "--floor", type=float, metavar="RETURN",
        help="return that counts as 0%%, for example a random policy's. Default: a return of 0.",
    )  # fmt: skip
    command.add_argument(
        "--episodes", type=read_episodes, default=EPISODES, help=f"episodes of the final test. Default: {EPISODES}."
    )
    command.add_argument(
        "--test", type=int, default=1, metavar="N",
        help="number of the final test: another number plays other episodes, so no test is repeated. Default: 1.",
    )  # fmt: skip
    command.add_argument(
        "--budget", type=read_seconds, default=600.0, metavar="TIME",
        help="time for all but the final test, as 90s, 10m or 1h; distillation takes what is left. Default: 10m.",
    )  # fmt: skip
    command.add_argument(
        "--target", default="any", help="backend that has to run it: litert, c, onnx, fpga, or any. Default: any."
    )
    command.add_argument(
        "--seed", type=int, default=0, help="random seed of distillation and of learned rounding. Default: 0."
    )
    command.add_argument(
        "--fewest-bytes", action="store_true",
        help="lower the weights of single layers to 4 or 2 bits where the return allows it. Default: do not.",
    )  # fmt: skip
    command.add_argument(
        "--resume", action="store_true",
        help="go on where an interrupted repair of the same policy, scheme, target and seed stopped. Default: not.",
    )  # fmt: skip
    command.add_argument("--output", type=read_path, help="folder to write the repaired integers to. Default: none.")


def read_seconds(text: str) -> float:
    """A time such as 90s, 10m or 1h, in seconds; a number alone is seconds."""
    unit = UNITS.get(text[-1:], 0.0)
    try:
        seconds = float(text[:-1] if unit else text) * (unit or 1.0)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: a time is a positive number with s, m or h, as 10m")
    return seconds


def run(options: argparse.Namespace) -> int:
    """Try every remedy, choose on validation seeds, test once on fresh ones, write what was chosen."""
    from quarl_bench.checking.subject import Subject
    from quarl_bench.experiments.store import Store, StorePaths
    from quarl_bench.policies.storage.fp32 import INTEGERS, WEIGHTS
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.repairing.plan import Plan

    use_one_thread()
    scheme = Scheme.parse(options.scheme)
    if options.output is not None:
        check_replaceable(options.output, WEIGHTS, INTEGERS)
    stored, environment = open_task(options)
    subject = Subject(stored, environment, Store(StorePaths(default_cache())), shown=None)
    plan = Plan(
        scheme, options.margin, options.floor, options.episodes, options.test, options.target, options.budget,
        options.seed, options.fewest_bytes,
    )  # fmt: skip
    found = repair_with_progress(subject, plan, resume=options.resume)
    result, lines = found.as_dict(), [str(found)]
    if options.output is not None:
        written, line = write_repaired(options.output, subject, found)
        result |= {"written": written}
        lines.append(line)
    print_result(options, result, "\n".join(lines))
    return CODES[str(found.test.verdict.outcome)]


def write_repaired(folder: Path, subject: "Subject", found: "Repair") -> tuple[dict[str, Any], str]:
    """Write the chosen integers to `folder`; what was written in JSON types, and in a line."""
    from quarl_bench.cli.commands.quantizing.quantize import write_quantized
    from quarl_bench.evaluation.calibration import count_calibration

    chosen, environment = found.chosen.candidate, subject.environment
    home: dict[str, str | None] = {} if environment.custom else {"environment": environment.id}
    states = count_calibration(environment)
    return write_quantized(
        folder, chosen.policy, subject.stored, chosen.scheme, states, home, chosen.steps, found.as_record()
    )


def repair_with_progress(subject: "Subject", plan: "Plan", *, resume: bool = False) -> "Repair":
    """The repair, and on a terminal a bar of its time, which the budget ends, with the last attempt."""
    from quarl_bench.repairing.plan import repair_policy

    with open_clock(plan.seconds, "repairing") as bar:

        def tell(attempt: "Attempt") -> None:
            played = "" if attempt.validation is None else f" returned {attempt.validation:.4g}"
            bar.set_postfix_str(f"{attempt.candidate.name}{played}")

        return repair_policy(subject, plan, tell, default_cache(), resume=resume)
