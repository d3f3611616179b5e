"""`quarl compare`: what moved between two runs."""

import argparse
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.printing import print_result

if TYPE_CHECKING:
    from quarl_bench.report.documents import Document

CHANGED = 1  # exit code
EXIT_CODES = f"exit codes: 0 no verdict changed, {CHANGED} one did, 2 wrong input (one line on stderr), 130 interrupted"


def add_command(commands: Any) -> None:
    """Add `quarl compare`: the results files of two runs."""
    command = new_command(commands, "compare", run,
        "quarl compare last.json now.json", EXIT_CODES)  # fmt: skip
    command.add_argument(
        "before", type=read_path, metavar="BEFORE", help="results file of the earlier run, of pytest --quarl-json"
    )
    command.add_argument("after", type=read_path, metavar="AFTER", help="results file of the later run")


def run(options: argparse.Namespace) -> int:
    """Compare the two; return 1 where a verdict is another one."""
    from quarl_bench.report.documents import read_results

    before, after = map(read_results, (options.before, options.after))
    changes, lines, code = compare_results(before, after)
    print_result(options, {"changes": changes}, "\n".join(lines))
    return code


def compare_results(before: "Document", after: "Document") -> tuple[list[dict[str, Any]], list[str], int]:
    """What moved between two results, as JSON types and as lines, and the exit code."""
    from quarl_bench.report.compare import compare_rows, list_changes, list_conditions

    found = compare_rows(before.rows, after.rows)
    lines = [*list_changes(found, verbose=True), *list_conditions(before.data, after.data)]
    return found.as_dicts(), lines, CHANGED if found.changed else 0
