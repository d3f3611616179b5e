"""Rows of a results file, found by what they are about."""

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]


class Rows:
    """Rows of results, found by claim and cell."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._claims: dict[str, list[Row]] = {}
        for row in rows:
            self._claims.setdefault(str(row["claim"]), []).append(row)

    def find(self, claim: str, **cell: str) -> Row | None:
        """The first row of `claim` of which all of `cell` is true; None where there is none."""
        return next(iter(self.find_all(claim, **cell)), None)

    def find_all(self, claim: str, **cell: str) -> list[Row]:
        """Every row of `claim` of which all of `cell` is true."""
        rows = self._claims.get(claim, ())
        return [row for row in rows if all(str(row.get(key, "")) == value for key, value in cell.items())]


def list_notes(found: Rows, *claims: str, task: str = "") -> Iterator[str]:
    """What rows of `claims` say, about `task` if one is named: their notes begin with it."""
    notes = dict.fromkeys(str(note) for claim in claims for row in found.find_all(claim) for note in row["caveats"])
    start = f"{task}: " if task else ""
    yield from (note.removeprefix(start) for note in notes if note.startswith(start))
