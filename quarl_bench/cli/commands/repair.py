"""`quarl repair`: fewer bits that keep the return, found without training."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command
from quarl_bench.cli.commands.check import CODES
from quarl_bench.cli.opening import open_task, use_one_thread
from quarl_bench.cli.printing import print_result
from quarl_bench.system.atomic import check_replaceable
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.repairing.search import Attempt

EXIT_CODES = (
    "exit codes: 0 what was chosen is supported, 1 it is refuted, 3 not decided, 2 wrong input (one line on stderr), "
    "130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl repair`: a policy, the bits it is to run in, and where the repaired policy goes."""
    command = new_command(commands, "repair", run,
        "Find a form of a policy that keeps its return in fewer bits, without training it.",
        "quarl repair CartPole-v1.zip --normalization none --scheme int8 --output repaired", EXIT_CODES)  # fmt: skip
    add_task(command)
    command.add_argument("--scheme", default="int8", help="int2..int8; repair finds the options. Default: int8.")
    command.add_argument("--margin", type=float, default=0.05, help="of the return that may be lost. Default: 0.05.")
    command.add_argument(
        "--floor", type=float, metavar="RETURN",
        help="a return that counts as nothing, as a random policy's. Default: shares are of the return.",
    )  # fmt: skip
    command.add_argument("--episodes", type=read_episodes, default=100, help="of the one test. Default: 100.")
    command.add_argument("--output", type=Path, help="folder to write the repaired integers to. Default: none.")


def run(options: argparse.Namespace) -> int:
    """Try every remedy, choose on validation seeds, test once on fresh ones, write what was chosen."""
    from tqdm import tqdm

    from quarl_bench.checking.subject import Subject
    from quarl_bench.errors import SpecError
    from quarl_bench.experiments.store import Store, StorePaths
    from quarl_bench.policies.policy import PolicyNet
    from quarl_bench.policies.storage.fp32 import INTEGERS, WEIGHTS
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.repairing.ladder import list_candidates
    from quarl_bench.repairing.search import FINALISTS, confirm, search

    use_one_thread()
    scheme = Scheme.parse(options.scheme)
    if options.output is not None:
        check_replaceable(options.output, WEIGHTS, INTEGERS)
    stored, environment = open_task(options)
    policy = stored.policy
    if not isinstance(policy, PolicyNet):
        raise SpecError(f"{options.policy}: holds integers already; repair the fp32 policy that they came from")
    count = len(list_candidates(scheme, policy))
    subject = Subject(stored, environment, Store(StorePaths(default_cache())))
    with tqdm(total=count + min(FINALISTS, count) + 1, unit="try", disable=None) as bar:

        def tell(attempt: "Attempt") -> None:
            bar.set_postfix_str(attempt.scheme.name)
            bar.update()

        attempts = search(subject, scheme, tell)
    found = confirm(subject, attempts, scheme, options.episodes, options.margin, options.floor)
    result, lines = found.as_dict(), [str(found)]
    if options.output is not None:
        from quarl_bench.cli.commands.quantize import write_quantized
        from quarl_bench.evaluation.calibration import count_calibration

        chosen = found.chosen.scheme
        states = count_calibration(environment)
        home: dict[str, str | None] = {} if environment.custom else {"environment": environment.id}
        written, line = write_quantized(options.output, subject.quantize(chosen), stored, chosen, states, home)
        result |= {"written": written}
        lines.append(line)
    print_result(options, result, "\n".join(lines))
    return CODES[str(found.chosen.verdict.outcome)]
