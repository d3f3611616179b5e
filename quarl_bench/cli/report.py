"""`quarl report`: results files as one HTML page."""

import argparse
from pathlib import Path
from typing import Any

from quarl_bench.cli.arguments import add_command as add
from quarl_bench.cli.printing import print_result


def add_command(commands: Any) -> None:
    """`report` and its options."""
    command = add(commands, "report", run, "Make one self-contained HTML page of results.",
                  "pytest --quarl-json=results.json; quarl report results.json --output report.html")  # fmt: skip
    command.add_argument(
        "results", type=Path, nargs="+",
        help="file of pytest --quarl-json; also what quarl sweep --json and quarl weights --json printed",
    )  # fmt: skip
    command.add_argument("--output", type=Path, default=Path("report.html"), help="Default: report.html.")


def run(options: argparse.Namespace) -> int:
    """Read, draw, write."""
    from quarl_bench.report.html import read_document, write_report

    documents = [read_document(path) for path in options.results]
    write_report(options.output, documents)
    size, rows = options.output.stat().st_size, sum(len(document.data["rows"]) for document in documents)
    result = {"file": str(options.output), "bytes": size, "files": len(documents), "rows": rows}
    print_result(options, result, f"{options.output}: {rows} rows of {len(documents)} files, {size:,} bytes")
    return 0
