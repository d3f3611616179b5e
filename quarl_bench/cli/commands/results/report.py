"""`quarl report`: results files as one HTML page, or as one results file."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.commands.results.compare import CHANGED, compare_results
from quarl_bench.cli.outputs import keep_inputs
from quarl_bench.cli.printing import print_result
from quarl_bench.system.atomic import PAGES, RESULTS, open_file
from quarl_bench.system.extras import needing

if TYPE_CHECKING:
    from quarl_bench.report.documents import Document

MERGE = "merge"
EXIT_CODES = (
    f"exit codes: 0 done, 2 wrong input (one line on stderr), {CHANGED} a verdict is another one than in --compare, "
    "130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl report`: results files to draw as one page, or to merge and to compare with the last run's."""
    command = new_command(commands, "report", run,
        "quarl report merge 1.json 2.json --compare last.json", EXIT_CODES)  # fmt: skip
    command.add_argument(
        "results", nargs="+", metavar="FILE",
        help="file of pytest --quarl-json; also what quarl sweep, weights and check printed with --json. With `merge` "
        "before the files, which are then the parts of one run, a results file is written instead of a page",
    )  # fmt: skip
    command.add_argument(
        "--output",
        type=read_path,
        metavar="FILE",
        help="what is written. Default: report.html, or results.json of merge.",
    )
    command.add_argument(
        "--figures", type=read_path, metavar="DIR",
        help="write the verdict matrix and the return against bits there, as SVG and PNG; a page only where --output "
        "names one. Default: a page alone.",
    )  # fmt: skip
    command.add_argument(
        "--compare", type=read_path, metavar="FILE",
        help="with merge: results file of the last run; say what moved, and exit with 1 on changed verdicts. "
        "Default: none.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Write the page, or with `merge` the merged results; return 1 where a verdict changed since the last run."""
    from quarl_bench.errors import SpecError

    first, *rest = options.results
    if first == MERGE and rest:
        if options.figures is not None:
            raise SpecError("--figures goes with a page's files; leave out merge")
        output = options.output = options.output or Path("results.json")
        keep_inputs(options)
        open_file(output, RESULTS)
        summary, lines, code = merge_files([Path(name) for name in rest], output, options.compare)
        print_result(options, summary, "\n".join(lines))
        return code
    if options.compare is not None:
        raise SpecError("--compare goes with merge: quarl report merge FILE ... --compare LAST")
    if options.figures is None:
        options.output = options.output or Path("report.html")
    if options.output is not None:
        open_file(options.output, *PAGES)
    return _draw(options, [Path(name) for name in options.results])


def _draw(options: argparse.Namespace, paths: list[Path]) -> int:
    from quarl_bench.errors import StoreError
    from quarl_bench.report.documents import read_document

    with needing("report", "a page"):
        from quarl_bench.report.page.export import write_figures
        from quarl_bench.report.page.html import write_report

    documents = [read_document(path) for path in paths]
    if not any(document.data["rows"] for document in documents):
        names, skipped = ", ".join(map(str, paths)), sum(len(each.data.get("skipped", ())) for each in documents)
        raise StoreError(f"{names}: no rows: nothing was judged ({skipped} skipped); name a run that judged something")
    rows = [row for document in documents if document.kind == "results" for row in document.rows]
    drawn = [] if options.figures is None else write_figures(options.figures, rows, shown=None)
    result: dict[str, Any] = {"figures": [str(path) for path in drawn]}
    lines = [f"{path}: {path.stat().st_size:,} bytes" for path in drawn]
    if (output := options.output) is not None:
        write_report(output, documents, shown=None)
        size, count = output.stat().st_size, sum(len(document.data["rows"]) for document in documents)
        result |= {"file": str(output), "bytes": size, "files": len(documents), "rows": count}
        lines.append(f"{output}: {count} rows of {len(documents)} files, {size:,} bytes")
    lines += _tell_machines(documents)
    print_result(options, result, "\n".join(lines))
    return 0


def _tell_machines(documents: "Sequence[Document]") -> list[str]:
    """A note where results were measured on several machines."""
    from quarl_bench.report.documents import list_machines

    machines = list_machines(documents)
    note = f"note: measured on {len(machines)} machines: {', '.join(machines)}; compare times on one of them only"
    return [note] if len(machines) > 1 else []


def merge_files(paths: list[Path], output: Path, last: Path | None) -> tuple[dict[str, Any], list[str], int]:
    """Write the results file of the parts; what to say as an object and as lines, and the exit code.

    It is 1 where a verdict is another one than in `last`, 0 otherwise and without it. StoreError as `merge_results`.
    """
    from quarl_bench.report.documents import Document, read_results
    from quarl_bench.report.merge import merge_results
    from quarl_bench.report.results import write_results

    documents = [read_results(path) for path in paths]
    results = merge_results(documents)
    rows, skipped = len(results["rows"]), len(results["skipped"])
    summary: dict[str, Any] = {"file": str(output), "files": len(paths), "rows": rows, "skipped": skipped}
    lines = [f"{output}: {rows} rows of {len(paths)} files, {skipped} skipped", *_tell_machines(documents)]
    code = 0
    if last is not None:
        changes, moved, code = compare_results(read_results(last), Document("merged", results))
        results["changes"] = summary["changes"] = changes
        lines += moved
    write_results(output, results)
    return summary, lines, code
