"""The papers' tables on the page, drawn as HTML from the views that each paper returns."""

from collections.abc import Sequence

from quarl_bench.papers.registry import list_providers, read_catalog
from quarl_bench.views.rows import Row
from quarl_bench.views.table import TableView


def view_tables(rows: Sequence[Row]) -> tuple[TableView, ...]:
    """Every paper's tables; none where no row is about one of the papers."""
    claims = {claim.id: claim for claim in read_catalog()}
    if not {row.claim for row in rows} & claims.keys():
        return ()
    papers = (paper.open("tables") for paper in list_providers("tables"))
    return tuple(table for paper in papers for table in paper.view_tables(claims, rows))
