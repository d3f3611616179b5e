"""A row: what one case or claim item says about itself; and rows found by what they are about.

Results files hold rows. Those of schema version 1 lack what makes a number auditable, and say nothing of it.
"""

import reprlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from types import UnionType
from typing import Any, Self, get_origin

from quarl_bench.errors import SpecError
from quarl_bench.spec import Outcome

SCHEMA_VERSION = 2
READABLE = (1, SCHEMA_VERSION)
COUNTS = ("mean", "policies", "episodes", "distinct_episodes")  # that each side of a case states
NULLABLE = ("paper", "estimate", "interval", "seconds")  # stated where they are None, too


@dataclass(frozen=True, kw_only=True)
class Row:
    """One judged item in built-in types only: its words, its verdict, what was measured, and what that rests on.

    `commit` and `seconds`, the duration of its test, are filled in at the end of a run. `seeds` are the first
    environment seed and how many. What is None by default belongs to some kinds of rows only, or is not known.
    """

    id: str
    claim: str
    kind: str  # case, claim or timing
    verdict: str
    threshold: float
    schema_version: int = 1
    nodeid: str = ""
    outcome: str = ""  # of the test
    rule: str = ""
    sentence: str = ""
    locus: str = ""
    known: str = ""
    algo: str = ""
    env: str = ""
    scheme: str = ""
    origin: str = ""
    board: str = ""
    measured: dict[str, Any] = field(default_factory=dict)
    reference: dict[str, Any] = field(default_factory=dict)
    returns: dict[str, Any] | None = None  # of each side of a case, every episode's
    paper: dict[str, Any] | None = None
    source: str = ""
    replay: bool = False  # of a claim that is circular: counted with no measurement
    regression: str = "none"
    estimate: float | None = None
    interval: list[float] | None = None
    scope: str = ""
    needed: str = ""
    caveats: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    line: str = ""
    commit: str = ""
    processor: str = ""
    code_epoch: str = ""
    policy_sha256: list[str] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    seconds: float | None = None
    environment_id: str | None = None
    preprocessing: str | None = None
    rounding: str | None = None
    versions: dict[str, Any] | None = None
    p_values: list[float] | None = None  # of a verdict "supported" and of "refuted"
    floor: float | None = None
    layers: list[str] | None = None
    panels: list[Any] | None = None
    errors: dict[str, Any] | None = None
    mean_absolute_error: float | None = None
    ratios: dict[str, Any] | None = None
    orders: dict[str, Any] | None = None
    histograms: dict[str, Any] | None = None
    curves: dict[str, Any] | None = None
    runs: dict[str, Any] | None = None
    states: str | list[Any] | None = None
    policies: dict[str, Any] | None = None
    weights: str | None = None
    gains: dict[str, Any] | None = None
    paper_gains: dict[str, Any] | None = None
    device: dict[str, Any] | None = None
    faults: list[str] | None = None

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """The row that `data` of a results file are; SpecError, in one line, where they are none.

        Names that this version does not know are left out.
        """
        if not isinstance(data, dict):
            raise SpecError(f"{reprlib.repr(data)} is no row")
        name = f"row {reprlib.repr(data.get('id'))}"
        name += f" of claim {reprlib.repr(data['claim'])}" if "claim" in data else ""
        if lacking := [key for key in ("nodeid", *_REQUIRED) if key not in data]:
            raise SpecError(f"{name} lacks {', '.join(lacking)}")
        for each in fields(cls):
            if each.name in data and not _fits(data[each.name], each.type):
                raise SpecError(f"{name}: {each.name} is {reprlib.repr(data[each.name])}")
        row = cls(**{each.name: data[each.name] for each in fields(cls) if each.name in data})
        if flaw := next(row._list_flaws(), ""):
            raise SpecError(f"{name}: {flaw}")
        return row

    def as_dict(self) -> dict[str, Any]:
        """What a results file holds; what is None because it belongs to other rows is left out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None or name in NULLABLE}

    def _list_flaws(self) -> Iterator[str]:
        """What has the right type and makes no sense."""
        if self.verdict not in set(Outcome):
            yield f"verdict is {reprlib.repr(self.verdict)}, none of {', '.join(Outcome)}"
        for name, limits in (("interval", self.interval), ("p_values", self.p_values or None)):
            if limits is not None and not (len(limits) == 2 and all(map(_is_number, limits))):
                yield f"{name} is {reprlib.repr(limits)}, not two numbers"
        if self.interval and self.interval[0] > self.interval[1]:
            yield f"interval is {reprlib.repr(self.interval)}: its limits are swapped"
        for side, values in (("measured", self.measured), ("reference", self.reference)):
            if self.kind == "case" and not all(_is_number(values.get(name)) for name in COUNTS):
                yield f"{side} lacks one of {', '.join(COUNTS)}"
        if self.paper is not None and not all(_is_number(self.paper.get(name)) for name in ("reference", "value")):
            yield "paper lacks reference or value"
        if self.gains and not {"name", "machine"} <= (self.device or {}).keys():
            yield "gains lack the name or the machine of their device"


_REQUIRED = [each.name for each in fields(Row) if each.default is MISSING and each.default_factory is MISSING]


class Rows:
    """Rows of results, found by claim and cell."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._claims: dict[str, list[Row]] = {}
        for row in rows:
            self._claims.setdefault(row.claim, []).append(row)

    def find(self, claim: str, **cell: str) -> Row | None:
        """The first row of `claim` of which all of `cell` is true; None where there is none."""
        return next(iter(self.find_all(claim, **cell)), None)

    def find_all(self, claim: str, **cell: str) -> list[Row]:
        """Every row of `claim` of which all of `cell` is true."""
        rows = self._claims.get(claim, ())
        return [row for row in rows if all(getattr(row, key) == value for key, value in cell.items())]


def list_notes(found: Rows, *claims: str, task: str = "") -> Iterator[str]:
    """What rows of `claims` say, about `task` if one is named: their notes begin with it."""
    notes = dict.fromkeys(note for claim in claims for row in found.find_all(claim) for note in row.caveats)
    start = f"{task}: " if task else ""
    yield from (note.removeprefix(start) for note in notes if note.startswith(start))


def _fits(value: object, kind: Any) -> bool:
    """Whether a value is of a field's type; of what a list or dictionary holds only texts and numbers are looked at."""
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in kind.__args__)
    if kind is float:
        return _is_number(value)
    if get_origin(kind) is list:
        return isinstance(value, list) and all(kind.__args__[0] is Any or _fits(v, kind.__args__[0]) for v in value)
    return isinstance(value, get_origin(kind) or kind)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max  # NaN is not
