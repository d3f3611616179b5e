"""`quarl prove`: one policy in every backend, in the same episodes, to the same actions."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import add_integers, new_command, read_path
from quarl_bench.cli.opening import find_integers, quantize_to_integers, refuse_other_scheme, use_one_thread
from quarl_bench.cli.printing import print_result, say
from quarl_bench.errors import SpecError
from quarl_bench.system.atomic import open_folder
from quarl_bench.system.bars import collect
from quarl_bench.system.counts import read_episodes
from quarl_bench.system.places import default_cache
from quarl_bench.views.text import format_table

if TYPE_CHECKING:
    from quarl_bench.environments.registry import Environment
    from quarl_bench.policies.policy import IntegerPolicy
    from quarl_bench.prove.proof import ExecutorResult

EPISODES = 3
STATES = 256  # for the golden pairs of artefacts, and to time calls with
DIFFERENT, ABSENT = 1, 2  # exit codes: a backend diverges; one that was named cannot run
CODES = (
    "exit codes: 0 equal, 1 a backend diverges, 2 wrong input (one line on stderr) or a backend of --backends that "
    "cannot run, 130 interrupted"
)
COLUMNS = ("backend", "sha256 of actions", "return", "bytes", "cost", "unit", "source")


def add_command(commands: Any) -> None:
    """Add `quarl prove`: a policy of integers, the backends that play it, and the episodes."""
    command = new_command(commands, "prove", run,
        "quarl prove ppo-cartpole-qat8-seed0", CODES)  # fmt: skip
    add_integers(command)
    command.add_argument(
        "--episodes",
        type=read_episodes,
        default=EPISODES,
        help=f"episodes, each from an environment seed of its own. Default: {EPISODES}.",
    )
    command.add_argument(
        "--backends", metavar="NAMES",
        help="of integer, qat, c-arm, c-cortex-m4, rtl, and the backends that run integers here (litert, c, onnx, "
        "those of others), with commas. Default: all.",
    )  # fmt: skip
    command.add_argument("--cache", type=read_path, help="folder for compiled designs. Default: the user's.")


def run(options: argparse.Namespace) -> int:
    """Play the same seeds in every backend, print each backend's hash of actions; return 1 where one diverges."""
    from quarl_bench.evaluation.calibration import collect_states
    from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS, list_test_seeds
    from quarl_bench.prove.executors import GOLDEN, ProofSubject, list_executors
    from quarl_bench.prove.proof import prove

    use_one_thread()
    known = list_executors()
    names = list(known) if options.backends is None else options.backends.split(",")
    for name in names:
        if name not in known:
            raise SpecError(f"--backends {name!r}: unknown; known are {', '.join(known)}")
    policy, scheme, sha256, environment = _open(options)
    cache = open_folder(options.cache or default_cache() / "fpga")
    states = collect_states(policy, environment, STATES, CALIBRATION_SEEDS)
    subject = ProofSubject(policy, scheme, sha256, states, cache)
    played = prove(subject, environment, list_test_seeds(options.episodes), names)
    rows = collect(played, len({*names, GOLDEN}), "backend", lambda row: row.executor)
    equal = _agree(rows)
    result = {
        "policy_sha256": sha256,
        "scheme": scheme,
        "environment": environment.id,
        "episodes": options.episodes,
        "requantization": str(policy.net.requantization),
        "equal": equal,
        "rows": [asdict(row) for row in rows],
    }
    head = (
        f"policy {sha256[:16]}, {scheme}, {policy.net.requantization}, {environment.id}: {options.episodes} episodes, "
        f"{rows[0].actions} actions"
    )
    print_result(options, result, "\n".join([head, *_write_rows(rows)]))
    if not equal:
        return DIFFERENT
    absent = [row.executor for row in rows if row.reason]
    if absent and options.backends is not None:
        say(f"quarl prove: --backends {','.join(absent)}: cannot run here, as said above; leave out what is not needed")
        return ABSENT
    return 0


def _open(options: argparse.Namespace) -> "tuple[IntegerPolicy, str, str, Environment]":
    """The integers, their scheme, the hash that names them, and where they play."""
    found = find_integers(options)
    if found is None:
        return quantize_to_integers(options, "only integers can be equal everywhere")
    kept, trained, environment = found
    refuse_other_scheme(options, trained)
    return kept.policy, trained, kept.sha256, environment


def _write_rows(rows: "list[ExecutorResult]") -> list[str]:
    ran = [row for row in rows if not row.reason]
    table = [COLUMNS, *map(_format_row, ran)]
    return [
        *format_table(table),
        *(f"{row.executor}: {row.how}" for row in ran),
        *(f"not run: {row.executor}: {row.reason.removeprefix(row.executor + ': ')}" for row in rows if row.reason),
        *(f"DIFFERENT: {row.executor}: {row.divergence}" for row in rows if row.divergence),
        _conclude(ran),
    ]


def _agree(rows: "list[ExecutorResult]") -> bool:
    return len({row.sha256 for row in rows if not row.reason}) == 1


def _conclude(ran: "list[ExecutorResult]") -> str:
    if not _agree(ran):
        return "the hashes are not equal"
    return f"all {len(ran)} hashes equal" if len(ran) > 1 else "one hash, and nothing to compare it with"


def _format_row(row: "ExecutorResult") -> tuple[str, ...]:
    assert row.cost is not None  # noqa: S101  (of every row that ran)
    cost = f"{row.cost.value:,.10g}"
    return row.executor, row.sha256[:16], f"{row.mean:.6g}", f"{row.bytes:,}", cost, row.cost.unit, str(row.cost.source)
