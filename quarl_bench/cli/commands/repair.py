"""`quarl repair`: fewer bits that keep the return, found without training."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_task, new_command
from quarl_bench.cli.commands.check import CODES, COLUMNS, describe_line, format_line
from quarl_bench.cli.opening import open_task, use_one_thread
from quarl_bench.cli.printing import format_table, print_result
from quarl_bench.system.atomic import check_replaceable
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.places import default_cache

if TYPE_CHECKING:
    from quarl_bench.policies.policy import PolicyNet
    from quarl_bench.repairing.search import Attempt, Repair

TRIED = ("scheme", "same action", "regret", "validation return")
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

    from quarl_bench.checking.answer import Subject
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

        attempts = search(subject, policy, scheme, tell)
    found = confirm(subject, attempts, scheme, options.episodes, options.margin, options.floor)
    result, lines = describe_repair(found), print_repair(found, policy, environment.id)
    if options.output is not None:
        from quarl_bench.cli.commands.quantize import write_quantized
        from quarl_bench.experiments.measurement_key import count_calibration

        chosen = found.chosen.scheme
        states = count_calibration(environment)
        home: dict[str, str | None] = {} if environment.custom else {"environment": environment.id}
        written, line = write_quantized(options.output, subject.quantize(chosen), stored, chosen, states, home)
        result |= {"written": written}
        lines.append(line)
    print_result(options, result, "\n".join(lines))
    return CODES[str(found.chosen.verdict.outcome)]


def describe_repair(found: "Repair") -> dict[str, Any]:
    """All that `quarl repair --json` prints, but for what is written."""
    return {
        "kind": "repair",
        "asked": found.plain.scheme.name,
        "chosen": found.chosen.scheme.name,
        "attempts": [
            {
                "scheme": attempt.scheme.name,
                "agreement": attempt.agreement,
                "regret": attempt.regret,
                "validation_return": attempt.validation,
            }
            for attempt in found.attempts
        ],
        "reference_return": found.chosen.reference.mean,
        "plain": describe_line(found.plain),
        "test": describe_line(found.chosen),
    }


def print_repair(found: "Repair", policy: "PolicyNet", environment: str) -> list[str]:
    """What was tried, what has no use here, and the test."""
    from quarl_bench.repairing.ladder import list_remedies
    from quarl_bench.repairing.search import EPISODES

    rows = [TRIED, *map(_format_attempt, found.attempts)]
    tests = [COLUMNS, format_line(found.plain)]
    tests += [format_line(found.chosen)] if found.changed else []
    told = [f"  {remedy.option}: {remedy.reason}" for remedy in list_remedies(policy) if remedy.reason]
    episodes = len(found.chosen.reference.environment_seeds)
    chosen = found.chosen.scheme.name
    choice = f"{chosen} returns most there" if found.changed else f"no other form returns more there than {chosen}"
    return [
        f"{environment}: {len(found.attempts)} forms of one policy, the same fp32 function, nothing trained",
        (
            "decisions in states that calibrated nothing, and the return over "
            f"{EPISODES} validation episodes of those that decide best:"
        ),
        *format_table(rows),
        *(["not tried:", *told] if told else []),
        (
            f"{choice}. The one test, on {episodes} episodes that chose nothing, against fp32's "
            f"{found.chosen.reference.mean:.4g}:"
        ),
        *format_table(tests),
    ]


def _format_attempt(attempt: "Attempt") -> tuple[str, ...]:
    played = "" if attempt.validation is None else f"{attempt.validation:.4g}"
    return attempt.scheme.name, f"{attempt.agreement:.2%}", f"{attempt.regret:.3g}", played
