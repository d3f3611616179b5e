"""What a run leaves open: every undecided test with what would decide it, and verdicts that prove nothing."""

from collections.abc import Iterator

from quarl_bench.judging.outcomes import PROVES_NOTHING
from quarl_bench.spec import UNDECIDED
from quarl_bench.views.rows import Row


def list_undecided(rows: list[Row]) -> Iterator[str]:
    """A line for each undecided row, and for each that rests on a policy which does not beat random play."""
    for row in rows:
        if row.verdict in UNDECIDED:
            yield f"{row.verdict.upper()} {row.nodeid}: {row.id}: {_name_need(row)}"
    for row in rows:
        for caveat in row.caveats:
            if PROVES_NOTHING in caveat:
                yield f"{row.nodeid}: {row.id}: {caveat}"


def _name_need(row: Row) -> str:
    """What would decide it."""
    if row.needed:
        return f"needs {row.needed}"
    return f"missing: {', '.join(row.missing)}" if row.missing else row.line
