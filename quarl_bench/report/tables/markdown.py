"""Lines of Markdown: a table of texts, and what a stored verdict says in a cell."""

from collections.abc import Iterable, Sequence

from quarl_bench.views.rows import Row


def write_table(rows: Iterable[Sequence[str]]) -> list[str]:
    """A header and its rows; numbers behind the first column stand to the right."""
    head, *rest = rows
    return [write_row(head), "|---|" + "---:|" * (len(head) - 1), *map(write_row, rest)]


def write_row(cells: Iterable[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join(cells)} |"


def write_verdict(row: Row | None, unit: str = "") -> str:
    """The estimate with its interval, and the verdict; nothing without a row."""
    if row is None:
        return ""
    limits = "" if row.interval is None else f" [{', '.join(f'{limit:.2f}' for limit in row.interval)}]"
    return f"{'' if row.estimate is None else f'{row.estimate:.2f}{unit}{limits}, '}{row.verdict}"
