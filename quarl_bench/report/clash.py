"""Rows that say they are about one thing, and are not."""

from collections.abc import Iterable

from quarl_bench.judging.outcomes import QUANTIZABLE
from quarl_bench.views.rows import Row


def find_clash(rows: Iterable[Row]) -> str:
    """Two tests that check different policies under one id, in one line; empty where there are none."""
    seen: dict[str, Row] = {}
    for row in rows:
        first = seen.setdefault(row.id, row)
        if row.claim == QUANTIZABLE and row.policy_sha256 != first.policy_sha256:
            return (
                f"{row.id}: {first.nodeid} and {row.nodeid} check different policies under this id "
                f"({first.policy_sha256[0][:8]}, {row.policy_sha256[0][:8]}); pass name=... to one of them"
            )
    return ""
