"""The papers' tables on the page, drawn as HTML from the views that each paper returns."""

from collections.abc import Sequence
from dataclasses import dataclass

from quarl_bench.papers.registry import list_providers, read_catalog
from quarl_bench.views.rows import Row
from quarl_bench.views.table import TableView


@dataclass(frozen=True)
class SplitTable:
    """A paper's table; its lines that bring a number of ours apart from those that only repeat the paper."""

    title: str
    note: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    bare: tuple[tuple[str, ...], ...]


def view_tables(rows: Sequence[Row]) -> tuple[TableView, ...]:
    """Every paper's tables; none where no row is about one of the papers."""
    claims = {claim.id: claim for claim in read_catalog()}
    if not {row.claim for row in rows} & claims.keys():
        return ()
    papers = (paper.open("tables") for paper in list_providers("tables"))
    return tuple(table for paper in papers for table in paper.view_tables(claims, rows))


def split_tables(rows: Sequence[Row]) -> tuple[SplitTable, ...]:
    """The same, each split into lines with numbers of ours and lines that are as they would be without any row."""
    views = view_tables(rows)
    claims = {claim.id: claim for claim in read_catalog()} if views else {}
    papers = (paper.open("tables") for paper in list_providers("tables")) if views else ()
    without = [{*table.lines} for paper in papers for table in paper.view_tables(claims, ())]
    return tuple(
        SplitTable(
            view.title,
            view.note,
            view.head,
            tuple(line for line in view.lines if line not in bare),
            tuple(line for line in view.lines if line in bare),
        )
        for view, bare in zip(views, without, strict=True)
    )
