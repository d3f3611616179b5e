"""Two policies under one id are told, one policy twice is not."""

from quarl_bench.report.clash import find_clash
from tests.support.rows import make_row, to_rows


def make(*hashes, **changes):
    return to_rows(
        make_row("int8", 0.99, "supported", nodeid=f"t.py::{i}", policy_sha256=[sha256], **changes)
        for i, sha256 in enumerate(hashes)
    )


def test_different_policies_under_one_id():
    assert find_clash(make("a" * 64, "a" * 64, "b" * 64, claim="quantizable")) == (
        "ppo-cartpole-int8: t.py::0 and t.py::2 check different policies under this id (aaaaaaaa, bbbbbbbb); "
        "pass name=... to one of them"
    )


def test_one_policy_and_claims_of_papers_are_fine():
    assert not find_clash(make("a" * 64, "a" * 64, claim="quantizable"))
    assert not find_clash(make("a" * 64, "b" * 64))
    assert not find_clash([])
