"""A stored row's verdict, decided again from the returns that are stored with it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from quarl_bench.errors import StoreError
from quarl_bench.judging.claim import Claim, JudgedCase, expand
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.spec import Measurement, Verdict
from quarl_bench.views.rows import Row

SIDES = ("reference", "measured")
Cases = Mapping[tuple[str, str], JudgedCase]


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


def _read_returns(data: Mapping[str, Any]) -> Measurement:
    """What `rows.show_pair` wrote of one side."""
    sampled = data.get("sampled")
    measurement = Measurement.from_dict(dict(data))
    return measurement if sampled is None else replace(measurement, sampled=Measurement.from_dict(sampled))
