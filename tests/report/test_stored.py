"""Stored results: the last row of every case, with what an audit of its number needs."""

import pytest

from quarl_bench.judging.claim import expand
from quarl_bench.papers.registry import read_catalog
from quarl_bench.report.documents import Document, read_document
from quarl_bench.report.page.matrix import view_matrix
from quarl_bench.report.stored import find_unknown, find_void, list_outcomes, merge_stored, reduce_row
from tests.support.pages import DOCS
from tests.support.rows import CLAIM, make_row

NOTHING = {"runs": [], "rows": []}
IDS = {"cell": {"a", "b", "c"}}


def make_results(commit, **rows):
    """A results file with one row per id of the claim "cell"; `known` where the verdict says so."""
    split = {id_: verdict.partition(" ")[::2] for id_, verdict in rows.items()}
    return {
        "commit": commit,
        "settings": {"profile": "nightly", "episodes": 100},
        "machine": {"processor": commit, "cores": 2, "python": "3.11"},
        "rows": [make_row("w8", 1.0, v, claim="cell", id=id_, known=known) for id_, (v, known) in split.items()],
    }


def test_a_part_of_a_nightly_replaces_what_it_ran():
    whole = merge_stored(NOTHING, make_results("1", a="supported", b="refuted", c="supported"), "2026-01-01", IDS)
    part = merge_stored(whole, make_results("2", b="refuted reason"), "2026-01-02", IDS)
    assert list_outcomes(part) == {"cell": {"a": ["supported", 0], "b": ["refuted (known)", 1], "c": ["supported", 0]}}
    assert [run["date"] for run in part["runs"]] == ["2026-01-01", "2026-01-02"]
    rest = merge_stored(part, make_results("3", a="supported", c="inconclusive"), "2026-01-03", {"cell": {"a", "b"}})
    assert list_outcomes(rest) == {"cell": {"a": ["supported", 1], "b": ["refuted (known)", 0]}}
    assert [run["commit"] for run in rest["runs"]] == ["2", "3"]
    empty = merge_stored(rest, make_results("4"), "2026-01-04", {})
    assert (empty["runs"], empty["rows"]) == ([], [])


def test_what_was_cached_took_as_long_as_before():
    def run(commit, verdict, seconds):
        results = make_results(commit, a=verdict, b=verdict)
        return results | {"rows": [row | {"seconds": seconds} for row in results["rows"]]}

    slow = run("1", "supported", 60.0)
    stored = merge_stored(NOTHING, slow | {"rows": slow["rows"][:1]}, "2026-01-01", IDS)
    for cached, seconds in ((True, [60.0, 0.5]), (False, [0.5, 0.5])):
        rows = merge_stored(stored, run("2", "refuted", 0.5), "2026-01-02", IDS, cached=cached)["rows"]
        assert [row["seconds"] for row in rows] == seconds
        assert [row["verdict"] for row in rows] == ["refuted", "refuted"]


@pytest.mark.parametrize("kind", ["timing", "claim"])
def test_a_void_timing_or_sentence_over_some_replaces_nothing_and_is_named(kind):
    timing = {"kind": kind, "claim": "table4-speed", "id": "ppo-quadx2-int8-local"}
    good = make_row("int8", 2.25, "supported", **timing)
    busy = "void: other processes used 1.90 cores beside the timing (limit 0.1). Run again on an idle board"
    void = make_row("int8", 2.25, "inconclusive", **timing, needed=busy) | {"estimate": None, "interval": None}
    key, ids = ("table4-speed", timing["id"]), {"table4-speed": {timing["id"]}}
    first, late = (make_results(commit) | {"rows": [row]} for commit, row in (("1", good), ("2", void)))

    stored = merge_stored(NOTHING, first, "2026-01-01", ids)
    assert find_void(stored, late) == {key: busy}
    assert merge_stored(stored, late, "2026-01-02", ids) == stored

    alone = merge_stored(NOTHING, late, "2026-01-01", ids)
    assert not find_void(NOTHING, late)
    assert alone["rows"][0]["needed"] == busy
    assert not find_void(alone, first)
    assert merge_stored(alone, first, "2026-01-02", ids)["rows"][0]["estimate"] == 2.25
    assert not find_void(stored, make_results("3") | {"rows": [void | {"kind": "case"}]})


def test_rows_of_no_claim_of_this_version_are_named_with_claim_and_field():
    results = make_results("1", a="supported", z="supported")
    results["rows"].append(make_row("w8", 1.0, "supported", claim="cells", id="a"))
    assert find_unknown(results, IDS) == [
        "row 'z' of claim 'cell', field 'id': none of this version; left out",
        "row 'a' of claim 'cells', field 'claim': none of this version; left out",
    ]
    assert list_outcomes(merge_stored(NOTHING, results, "2026-01-01", IDS)) == {"cell": {"a": ["supported", 0]}}


def test_what_is_stored_is_a_results_file_that_can_be_audited():
    row = make_row("w8", 0.99, "supported", policy_sha256=["a" * 64, "b" * 64])
    kept = reduce_row(row)
    assert (kept["estimate"], kept["interval"], kept["policy_sha256"]) == (0.99, row["interval"], ["a" * 64, "b" * 64])
    assert kept["measured"] == {
        "mean": 198.0,
        "policies": 3,
        "episodes": 100,
        "distinct_episodes": 99,
        "agreement": 0.875,
    }
    ids = {"table2-cell": {"ppo-cartpole-w8"}, "table2-mean": {"ppo-table2-w8"}}
    stored = merge_stored(NOTHING, make_results("1") | {"rows": [row, CLAIM]}, "2026-01-01", ids)
    matrix = view_matrix(Document("stored.json", stored).rows)
    assert matrix.counts == {"supported": 1}


def test_what_is_known_not_to_hold_is_refuted_in_the_stored_nightly():
    stored = read_document(DOCS / "results" / "nightly.json.xz").data
    found, claims = list_outcomes(stored), read_catalog()
    processors = {row["processor"] for row in stored["rows"]}
    for claim in claims:
        for item in expand(claim):
            reasons = [item.find_known("nightly", processor) for processor in processors]
            if any(reasons) and item.id in found.get(claim.id, ()):
                assert found[claim.id][item.id][0].startswith("refuted"), f"{claim.id} {item.id}: {reasons}"


def test_what_is_refuted_in_the_stored_nightly_is_known():
    """Times are an exception where they were stored on another processor."""
    stored = read_document(DOCS / "results" / "nightly.json.xz").data
    found, open_ = list_outcomes(stored), []
    processors = {row["processor"] for row in stored["rows"]}
    for claim in read_catalog():
        for item in expand(claim):
            refuted = found.get(claim.id, {}).get(item.id, [""])[0].startswith("refuted")
            if refuted and not any(item.find_known("nightly", processor) for processor in processors):
                open_.append(f"{claim.id} {item.id}")
    assert not open_
