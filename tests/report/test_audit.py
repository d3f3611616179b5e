"""Rows whose verdict follows from the returns that are stored with them."""

import dataclasses
import json

import numpy as np
import pytest

from quarl_bench.errors import StoreError
from quarl_bench.papers.registry import read_catalog
from quarl_bench.report.audit import audit_rows, judge_again, list_cases
from quarl_bench.report.documents import read_document
from quarl_bench.report.rows.builder import build_row, show_case
from quarl_bench.views.rows import Row
from tests.support.measurements import measure_all
from tests.support.pages import DOCS
from tests.support.sizes import EXHAUSTIVE

STORED = DOCS / "results" / "nightly.json.xz"
CASES = list_cases(read_catalog())
PLAIN, ATARI = ("table2-cell", "ppo-cartpole-w8"), ("table2-cell", "ppo-pong-w8")


def write_and_read(key, reference, measured):
    """The row of a case, through a results file, and its verdict."""
    judged = CASES[key]
    verdict = judged.claim.judgement.decide_case(judged, reference, measured)
    row = build_row(judged, verdict, **show_case(judged, reference, measured))
    return Row.from_dict(json.loads(json.dumps({"nodeid": "t"} | row.as_dict()))), verdict


@pytest.mark.parametrize("key", [PLAIN, ATARI], ids="-".join)
def test_a_verdict_is_decided_again_from_the_returns_of_its_row(key):
    reference = measure_all(np.array([[20.0, 21.0, 18.0, 19.0], [20.0, 19.5, 20.5, 21.0], [18.0, 21.0, 20.0, 19.0]]))
    measured = measure_all(np.array([[19.0, 21.0, 18.0, 18.0], [20.0, 19.0, 20.5, 20.0], [18.0, 20.0, 20.0, 18.5]]))
    if key == ATARI:
        other = dataclasses.replace(measured, deterministic=False)
        measured = dataclasses.replace(measured, sampled=other)
        reference = dataclasses.replace(reference, sampled=dataclasses.replace(reference, deterministic=False))
    row, verdict = write_and_read(key, reference, measured)
    assert judge_again(row, CASES) == verdict
    assert (row.returns["measured"].get("sampled") is not None) == (key == ATARI)
    row.returns["measured"]["returns"][0][0] -= 15.0
    assert judge_again(row, CASES).estimate < verdict.estimate


def test_a_row_that_cannot_be_judged_again_is_named():
    reference = measure_all(np.array([[20.0, 21.0], [20.0, 19.0]]))
    row, _ = write_and_read(PLAIN, reference, reference)
    for changes, words in (
        ({"returns": None}, "no returns are stored"),
        ({"id": "ppo-cartpole-w77"}, "no such case"),
        ({"returns": {"reference": row.returns["reference"]}}, "ill-formed"),
        ({"returns": row.returns | {"measured": row.returns["measured"] | {"lengths": []}}}, "ill-formed"),
    ):
        with pytest.raises(StoreError, match=f"row ppo-cartpole-w[78]+ of table2-cell: .*{words}"):
            judge_again(dataclasses.replace(row, **changes), CASES)


def test_a_row_that_does_not_follow_is_told_in_one_line():
    reference = measure_all(np.array([[20.0, 21.0], [20.0, 19.0]]))
    row, verdict = write_and_read(PLAIN, reference, reference)
    other = dataclasses.replace(row, verdict="refuted", interval=[0.1, 0.2])
    found = audit_rows([row, other, dataclasses.replace(row, returns=None)], CASES)
    assert (found.same, found.bare) == (1, 1)
    (line,) = found.differing
    assert line.startswith(f"table2-cell ppo-cartpole-w8: stored refuted {verdict.estimate:.6g} [0.1, 0.2], from its")
    assert f"returns {verdict.outcome} " in line


def pick_stored(count):
    """Rows of the stored nightly that hold returns, evenly spaced among all of them."""
    rows = [row for row in read_document(STORED).rows if row.returns is not None]
    return rows if EXHAUSTIVE else rows[:: max(1, len(rows) // count)][:count]


@pytest.mark.parametrize("row", pick_stored(20), ids=lambda row: f"{row.claim}-{row.id}")
def test_the_stored_nightlys_verdicts_follow_from_its_returns(row):
    verdict = judge_again(row, CASES)
    assert (verdict.outcome, verdict.threshold) == (row.verdict, row.threshold)
    assert (verdict.estimate, verdict.low, verdict.high) == pytest.approx(
        (row.estimate, *(row.interval or (None,) * 2))
    )
