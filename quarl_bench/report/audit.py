"""A stored row's verdict, decided again from the returns that are stored with it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from quarl_bench.errors import StoreError
from quarl_bench.judging.claim import Claim, JudgedCase, expand
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.spec import Measurement, Verdict
from quarl_bench.views.rows import Row

SIDES = ("reference", "measured")
CLOSE = 1e-6  # relative: sums of floats differ in their last digits between versions of NumPy
Cases = Mapping[tuple[str, str], JudgedCase]


@dataclass(frozen=True)
class Audit:
    """What became of the rows of a file: how many follow from their returns, how many hold none, and what differs."""

    same: int
    bare: int
    differing: tuple[str, ...]  # a line for each


def audit_rows(rows: Iterable[Row], cases: Cases) -> Audit:
    """Judge every row with returns again; StoreError for one that cannot be."""
    rows = list(rows)
    held = [row for row in rows if row.returns is not None]
    told = [line for row in held if (line := _compare(row, judge_again(row, cases)))]
    return Audit(len(held) - len(told), len(rows) - len(held), tuple(told))


def list_cases(claims: Iterable[Claim]) -> dict[tuple[str, str], JudgedCase]:
    """Every case of `claims`, by claim and id."""
    items = ((claim, item) for claim in claims for item in expand(claim))
    return {(claim.id, item.id): item for claim, item in items if isinstance(item, JudgedCase)}


def judge_again(row: Row, cases: Cases) -> Verdict:
    """The verdict of the row's claim on the returns of the row, by the rule and the threshold of today.

    StoreError for a row without returns, with returns of another form, or of a case that is no more.
    """
    if row.returns is None:
        raise StoreError(f"row {row.id} of {row.claim}: no returns are stored; make the file again by --quarl-json")
    judged = cases.get((row.claim, row.id))
    if judged is None:
        raise StoreError(f"row {row.id} of {row.claim}: no such case; it was judged by another version")
    try:
        reference, measured = (_read_returns(row.returns[side]) for side in SIDES)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"row {row.id} of {row.claim}: returns are ill-formed ({error}); restore the file") from error
    return judged.claim.require(Keeps).decide_case(judged, reference, measured)


def _compare(row: Row, verdict: Verdict) -> str:
    """A line where the two differ in words or numbers, else nothing."""
    stored = (row.estimate, *(row.interval or (None, None)))
    found = (verdict.estimate, verdict.low, verdict.high)
    if row.verdict == verdict.outcome and all(map(_equal, stored, found)):
        return ""
    told = f"stored {row.verdict} {_write(*stored)}, from its returns {verdict.outcome} {_write(*found)}"
    return f"{row.claim} {row.id}: {told}"


def _equal(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=CLOSE)


def _write(*numbers: float | None) -> str:
    estimate, low, high = ("none" if number is None else f"{number:.6g}" for number in numbers)
    return f"{estimate} [{low}, {high}]"


def _read_returns(data: Mapping[str, Any]) -> Measurement:
    """What `rows.show_pair` wrote of one side."""
    sampled = data.get("sampled")
    measurement = Measurement.from_dict(dict(data))
    return measurement if sampled is None else replace(measurement, sampled=Measurement.from_dict(sampled))
