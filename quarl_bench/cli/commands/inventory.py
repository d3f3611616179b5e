"""`quarl list`: the names that other commands take."""

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.printing import print_result
from quarl_bench.views.text import format_table

Rows = Iterator[tuple[str, str]]


def add_command(commands: Any) -> None:
    """Add `quarl list`: a kind of thing, or all kinds."""
    command = new_command(commands, "list", run,
        "quarl list environments"
    )  # fmt: skip
    command.add_argument("kind", nargs="?", choices=tuple(KINDS), help="what to list. Default: all, counted.")
    command.add_argument(
        "--boards", type=read_path, metavar="FILE", help="board file (TOML). Default: this machine alone."
    )


def run(options: argparse.Namespace) -> int:
    """Print the names of one kind with what each is, or how many there are of each."""
    if options.kind is None:
        counts = {kind: sum(1 for _ in find(options)) for kind, find in KINDS.items()}
        rows = [("kind", "names"), *((kind, str(count)) for kind, count in counts.items())]
        print_result(options, counts, "\n".join(format_table(rows)))
        return 0
    found = dict(KINDS[options.kind](options))
    width = max(map(len, found), default=0)
    lines = [f"{name:<{width}}  {told}".rstrip() for name, told in found.items()]
    print_result(options, {options.kind: found}, "\n".join(lines))
    return 0


def _find_policies(_: argparse.Namespace) -> Rows:
    from quarl_bench.experiments.policy_source import list_baselines

    return ((name, "") for name in list_baselines())


def _find_environments(_: argparse.Namespace) -> Rows:
    from quarl_bench.environments.registry import list_environments

    extras = {one.slug: f"{one.id}{f', extra {one.extra}' if one.extra else ''}" for one in list_environments()}
    return iter(extras.items())


def _find_schemes(_: argparse.Namespace) -> Rows:
    yield "fp32", "nothing is quantized"
    yield "fp16", "weights in IEEE 754 binary16"
    yield "w32..w2", "weights alone; options sym wide pt pc floor cle"
    yield (
        "int8..int2",
        "weights and activations; options sym narrow wide pt pc ema mse pct<dd> uncal pow2 eq cle hba acc w<digits>",
    )
    yield "qat8..qat2", "the same, trained with the quantizer"
    yield "i8c3o8", "bits of input, core and output, trained; h16 for another hidden width, ptq without training"


def _find_backends(_: argparse.Namespace) -> Rows:
    from quarl_bench.backends.registry import BACKENDS

    return ((one.name, f"also {', '.join(one.aliases)}" if one.aliases else "") for one in BACKENDS.values())


def _find_boards(options: argparse.Namespace) -> Rows:
    from quarl_bench.boards.board import read_boards
    from quarl_bench.spec import LOCAL

    boards = {} if options.boards is None else read_boards(options.boards)
    yield LOCAL, "this machine"
    yield from ((name, str(board.source)) for name, board in boards.items() if name != LOCAL)


def _find_claims(_: argparse.Namespace) -> Rows:
    from quarl_bench.papers.registry import read_catalog

    return ((claim.id, f"{claim.where}: {claim.says}") for claim in read_catalog())


KINDS: dict[str, Callable[[argparse.Namespace], Rows]] = {
    "policies": _find_policies,
    "environments": _find_environments,
    "schemes": _find_schemes,
    "backends": _find_backends,
    "boards": _find_boards,
    "claims": _find_claims,
}
