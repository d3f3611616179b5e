"""The verdict matrix: environments against algorithm and scheme, a mark where a cell was judged."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quarl_bench.environments.registry import list_environments
from quarl_bench.views.rows import Row

RULE = "retention"  # of rows whose estimate is the share of the return that is kept
SYMBOLS = {"supported": "✔", "refuted": "✖", "inconclusive": "?", "undecidable": "∅", "partial": "◐"}
FAMILIES = ("fp", "w", "int", "qat")  # from left to right, each from many bits to few
HALF = 0.005  # a share that is rounded to a percent
OWN = "policy"  # stands for the algorithm where a policy names none


@dataclass(frozen=True)
class Mark:
    """One judged cell: its case and claim, its verdict, and what it keeps with the limits of that."""

    id: str
    claim: str
    verdict: str
    kept: float | None
    low: float | None
    high: float | None

    @property
    def symbol(self) -> str:
        """The verdict as one character, for those who see no colours."""
        return SYMBOLS[self.verdict]

    @property
    def share(self) -> str:
        """What is kept of the return, as 98%; empty where there is no estimate; <0% where more than all is lost."""
        return "" if self.kept is None else "<0%" if self.kept <= -HALF else f"{self.kept:z.0%}"

    @property
    def words(self) -> str:
        """The mark for those who hear it."""
        kept = "" if self.kept is None else f", keeps {self.kept:z.0%} of the return"
        return f"{self.id}: {self.verdict}{kept}"


@dataclass(frozen=True)
class Column:
    """A scheme of an algorithm."""

    algo: str
    scheme: str


@dataclass(frozen=True)
class Line:
    """The marks of one environment in the order of the columns; None where nothing was judged."""

    environment: str
    origin: str  # of the policies, where they are not the recipes' own
    marks: tuple[Mark | None, ...]


@dataclass(frozen=True)
class Matrix:
    """What was judged of single cells, at one glance."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Algorithms with how many columns each has."""
        names = [column.algo for column in self.columns]
        return tuple((name, names.count(name)) for name in dict.fromkeys(names))

    @property
    def counts(self) -> dict[str, int]:
        """How many marks there are of each verdict that occurs, in the order of `SYMBOLS`."""
        found = [mark.verdict for line in self.lines for mark in line.marks if mark]
        return {verdict: found.count(verdict) for verdict in SYMBOLS if verdict in found}


def view_matrix(rows: Sequence[Row], schemes: Iterable[str] = ()) -> Matrix | None:
    """The matrix of all rows about kept returns, or of those under `schemes`; None where there are none.

    Where a cell was judged twice, as simulated and as deployed, the mark is that of the simulation.
    """
    wanted = set(schemes)
    cells = [row for row in rows if row.kind == "case" and row.rule == RULE and (row.scheme in wanted or not wanted)]
    found: dict[tuple[str, str], dict[Column, Row]] = {}
    for row in sorted(cells, key=lambda row: bool(row.board)):
        found.setdefault((row.env, row.origin), {}).setdefault(Column(row.algo or OWN, row.scheme), row)
    if not found:
        return None
    columns = tuple(
        sorted({column for line in found.values() for column in line}, key=lambda c: (c.algo, rank_scheme(c.scheme)))
    )
    places = {environment.slug: place for place, environment in enumerate(list_environments())}
    keys = sorted(found, key=lambda key: (key[1], places.get(key[0], len(places)), key[0]))
    return Matrix(
        columns, tuple(Line(*key, tuple(_mark(found[key].get(column)) for column in columns)) for key in keys)
    )


def rank_scheme(scheme: str) -> tuple[int, int, str]:
    """A sort key: the family, then from many bits to few."""
    family = scheme.rstrip("0123456789") if scheme[-1:].isdigit() else ""
    bits = scheme[len(family) :] if family in FAMILIES else ""
    return FAMILIES.index(family) if bits else len(FAMILIES), -int(bits or 0), scheme


def _mark(row: Row | None) -> Mark | None:
    if row is None:
        return None
    low, high = row.interval or (None, None)
    return Mark(row.id, row.claim, row.verdict, row.estimate, low, high)
