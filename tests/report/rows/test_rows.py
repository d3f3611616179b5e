"""Rows as values: what they keep through a file, and what files of other versions give."""

import json

import pytest

from quarl_bench.errors import SpecError
from quarl_bench.judging.evidence import Evidence
from quarl_bench.report.results import build_results
from quarl_bench.report.rows.builder import build_row, show_cells
from quarl_bench.spec import Outcome, Verdict
from quarl_bench.views.rows import SCHEMA_VERSION, Row
from tests.support.rows import CLAIM, ROWS

ABOUT = {"id": "a-b-w8", "claim": "mine", "board": "", "kind": "claim"}
VERDICT = Verdict(Outcome.PARTIAL, None, None, None, 0.5, "this policy", 1, 1, 1, caveats=("one",))


@pytest.mark.parametrize("data", ROWS)
def test_a_row_of_the_first_version_keeps_what_it_says(data):
    written = json.loads(json.dumps(Row.from_dict(data).as_dict()))
    assert {key: written[key] for key in data} == data
    assert (written["schema_version"], written["commit"], written["seconds"]) == (1, "", None)
    assert "gains" not in written, "what belongs to other rows is left out"
    assert Row.from_dict(written | {"of_a_later_program": 1}) == Row.from_dict(data)


def test_a_built_row_states_its_version_processor_and_code_and_a_run_adds_commit_and_seconds(tmp_path):
    shown = show_cells(Evidence(hashes={"a": ["2", "1"]}))
    row = build_row(ABOUT, VERDICT, nodeid="t", **shown)
    assert (row.schema_version, row.verdict, row.caveats) == (SCHEMA_VERSION, "partial", ["one"])
    assert row.policy_sha256 == ["1", "2"]
    assert row.processor
    assert len(row.code_epoch) == 16
    (written,) = build_results([row], {}, tmp_path, {"t": 1.23456})["rows"]
    assert (written["commit"], written["seconds"]) == ("", 1.235)
    assert Row.from_dict(json.loads(json.dumps(written))).as_dict() == written


def test_a_row_on_a_board_names_the_code_of_its_backends():
    here, there = (build_row(ABOUT | {"board": board}, VERDICT) for board in ("", "local"))
    assert here.code_epoch != there.code_epoch


@pytest.mark.parametrize("name", sorted(CLAIM))
def test_a_value_of_another_type_is_named(name):
    with pytest.raises(SpecError, match=rf"row .*: {name} is"):
        Row.from_dict(CLAIM | {name: object()})
