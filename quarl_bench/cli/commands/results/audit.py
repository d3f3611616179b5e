"""`quarl audit`: whether the verdicts of a results file follow from the returns that it holds."""

import argparse
from typing import Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.printing import print_result

DIFFERS = 1  # exit code
EXIT_CODES = (
    f"exit codes: 0 every verdict follows, {DIFFERS} one does not, 2 wrong input (one line on stderr), 130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl audit`: a results file, or the stored nightly."""
    command = new_command(commands, "audit", run,
        "quarl audit docs/results/nightly.json.xz", EXIT_CODES)  # fmt: skip
    command.add_argument(
        "results", type=read_path, metavar="FILE", help="results file of pytest --quarl-json, also packed as .xz"
    )


def run(options: argparse.Namespace) -> int:
    """Judge every case of the file again, from its returns alone; return 1 where a verdict is another one."""
    from quarl_bench.papers.registry import read_catalog
    from quarl_bench.report.audit import audit_rows, list_cases
    from quarl_bench.report.documents import read_results

    found = audit_rows(read_results(options.results).rows, list_cases(read_catalog()))
    counts = [f"{found.same} verdicts follow from their returns", f"{len(found.differing)} do not",
              f"{found.bare} rows hold no returns"]  # fmt: skip
    print_result(
        options,
        {"same": found.same, "bare": found.bare, "differing": list(found.differing)},
        "\n".join([*found.differing, ", ".join(counts)]),
    )
    return DIFFERS if found.differing else 0
