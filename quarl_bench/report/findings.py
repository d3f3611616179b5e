"""The papers' main statements, each answered in one line: what the nightly's terminal and the README end with."""

from collections import Counter
from collections.abc import Iterator, Sequence

from quarl_bench.papers.registry import list_providers
from quarl_bench.report.stored import VOID
from quarl_bench.report.terminal import ORDER
from quarl_bench.views.rows import Row, Rows
from quarl_bench.views.statement import Statement


def list_findings(rows: Sequence[Row]) -> Iterator[str]:
    """A line for every statement that these rows answer: the statement, the paper's number, ours, and the verdict."""
    found = Rows(rows)
    for paper in list_providers("statements"):
        for statement in paper.open("statements").STATEMENTS:
            if answer := _answer(statement, found):
                source = f"paper: {statement.printed}" if statement.printed else "ours"
                yield f"{statement.says} ({source}): {answer}"


def _answer(statement: Statement, found: Rows) -> str:
    """What the rows say; empty where none is about it."""
    if statement.item:
        row = found.find(statement.claim, id=statement.item)
        return "" if row is None else _tell(statement, row)
    cases = found.find_all(statement.claim, scheme=statement.scheme)
    counts = Counter(row.verdict for row in cases)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in reversed(ORDER) if counts[verdict])
    lost = sorted(row.id for row in cases if row.verdict == "refuted")
    names = f" ({', '.join(lost)})" if lost else ""
    return f"{len(cases)} {'cell' if len(cases) == 1 else 'cells'}, {told}{names}" if cases else ""


def _tell(statement: Statement, row: Row) -> str:
    """The estimate with its interval, what it rests on, and the verdict."""
    verdict = f"{row.verdict} {statement.beside}".rstrip()
    if row.kind == "timing" and row.needed.startswith(VOID):
        return f"{verdict}; our times are void, because the machine was busy"
    if row.estimate is None:
        return f"{verdict}; our number is not stored yet"
    number = statement.write(row.estimate)
    exact = row.interval is not None and row.interval[0] == row.interval[1]
    limits = f" [{', '.join(map(statement.write, row.interval))}]" if row.interval and not exact else ""
    if exact and row.kind == "case":
        return f"{row.scope}, {number} {statement.measure}: {verdict}"
    policies = row.measured.get("policies") if row.kind == "case" else None
    on = f"{policies} {'policy' if policies == 1 else 'policies'}, " if isinstance(policies, int) else ""
    return f"{on}{number}{limits} {statement.measure}: {verdict}"
