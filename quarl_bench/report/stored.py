"""Stored results: the last row of every case of several runs, cut down to what an audit of its number needs.

A stored file is a results file with `runs` (date, commit, settings, machine) and a `run` in every row.
"""

from collections.abc import Mapping
from typing import Any

from quarl_bench.views.rows import COUNTS, SCHEMA_VERSION

KEPT = (
    "nodeid", "id", "claim", "kind", "rule", "verdict", "threshold", "estimate", "interval", "floor", "algo", "env",
    "scheme", "origin", "board", "known", "paper", "source", "scope", "needed", "missing", "seeds", "processor",
    "code_epoch", "line", "sentence", "locus", "commit", "seconds", "environment_id", "preprocessing", "rounding",
    "versions", "p_values", "returns", "policy_sha256",
)  # fmt: skip
SIDES = ("measured", "reference")
SIDE = ("agreement", "per_policy")  # that each side of a case keeps as well; the means show how policies differ
TIMED = ("timing", "claim")  # kinds of rows that are of times, or may be over them
VOID = "void: "  # so begins what such a row needs where the machine was busy
Ids = Mapping[str, set[str]]  # by claim, of its cases or items
Outcomes = dict[str, dict[str, list[Any]]]  # by claim and id: the verdict in words, and its run


def merge_stored(
    stored: dict[str, Any], results: dict[str, Any], date: str, ids: Ids, *, cached: bool = False
) -> dict[str, Any]:
    """`stored` with the rows of a results file of that day in their place; what has no id any more is dropped.

    A row that `find_void` names takes no place. Where episodes were `cached`, the stored seconds stay.
    """
    runs = [*stored["runs"], {"date": date, **{name: results[name] for name in ("commit", "settings", "machine")}}]
    rows = {(row["claim"], row["id"]): row for row in stored.get("rows", ())}
    void = find_void(stored, results)
    for row in results["rows"]:
        if (row["claim"], row["id"]) not in void:
            reduced = reduce_row(row) | {"run": len(runs) - 1}
            before = rows.get((row["claim"], row["id"]), {})
            if cached and "seconds" in before:
                reduced["seconds"] = before["seconds"]
            rows[row["claim"], row["id"]] = reduced
    rows = {key: row for key, row in sorted(rows.items()) if key[1] in ids.get(key[0], ())}
    used = sorted({row["run"] for row in rows.values()})
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [runs[run] for run in used],
        "rows": [row | {"run": used.index(row["run"])} for row in rows.values()],
    }


def find_void(stored: dict[str, Any], results: dict[str, Any]) -> dict[tuple[str, str], str]:
    """By claim and id, what made times of a results file void where `stored` has a verdict that is not."""
    good = {(row["claim"], row["id"]) for row in stored.get("rows", ()) if not is_void(row)}
    void = {(row["claim"], row["id"]): row["needed"] for row in results["rows"] if is_void(row)}
    return {key: needed for key, needed in void.items() if key in good}


def find_unknown(results: dict[str, Any], ids: Ids) -> list[str]:
    """A line for every row of a results file that is about no claim, or no item, of this version."""
    unknown = [(row["claim"], row["id"]) for row in results["rows"] if row["id"] not in ids.get(row["claim"], ())]
    return [
        f"row {id_!r} of claim {claim!r}, field {'id' if claim in ids else 'claim'!r}: none of this version; left out"
        for claim, id_ in unknown
    ]


def is_void(row: Mapping[str, Any]) -> bool:
    """Whether a row, of times or over them, lacks times because its machine was busy, throttled, or its clock moved."""
    return row["kind"] in TIMED and (row.get("needed") or "").startswith(VOID)


def reduce_row(row: dict[str, Any]) -> dict[str, Any]:
    """What an audit needs: verdict, estimate, interval, every return, and the policies' hashes."""
    kept = {name: row[name] for name in KEPT if row.get(name) not in (None, "", [])}
    kept |= {name: row.get(name) for name in ("estimate", "interval")} | ({"replay": True} if row.get("replay") else {})
    if row["kind"] == "case":
        kept |= {side: {name: row[side][name] for name in (*COUNTS, *SIDE) if name in row[side]} for side in SIDES}
    return kept


def list_outcomes(stored: dict[str, Any]) -> Outcomes:
    """The verdict of every case and item that is stored, as words."""
    found: Outcomes = {}
    for row in stored.get("rows", ()):
        known = " (known)" if row.get("known") and row["verdict"] == "refuted" else ""
        found.setdefault(row["claim"], {})[row["id"]] = [row["verdict"] + known, row["run"]]
    return found
