"""Results files of the parts of one run -> the results file of the whole run."""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from quarl_bench.errors import StoreError
from quarl_bench.report.documents import Document
from quarl_bench.views.rows import SCHEMA_VERSION, Row

SAME_IN_ALL_PARTS = ("commit", "settings")  # what parts of one run have in common


def merge_results(documents: Sequence[Document]) -> dict[str, Any]:
    """One results file of the parts; the order of `documents` makes no difference.

    StoreError where they are not parts of one run: another commit, other settings, a shard that is missing, given twice
    or interrupted, or a row that two of them tell differently. What one part skipped and another judged was not
    skipped.
    """
    first = documents[0]
    for one, other in itertools.combinations(documents, 2):
        if one.data == other.data:
            raise StoreError(f"{other.name}: the same results as {one.name}; name each part once")
    for document in documents[1:]:
        for key in SAME_IN_ALL_PARTS:
            if document.data.get(key) != first.data.get(key):
                raise StoreError(f"{document.name}: another {key} than {first.name}; merge the parts of one run")
    for document in documents:
        if document.data.get("interrupted"):
            raise StoreError(f"{document.name}: its run was interrupted, so cases are missing; run it again")
    _check_shards(documents)
    rows = _merge_rows(documents)
    judged = {row.nodeid for row in rows}
    durations: dict[str, float] = {}
    for document in documents:
        for nodeid, seconds in document.data.get("durations", {}).items():
            durations[nodeid] = max(seconds, durations.get(nodeid, 0.0))
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": _merge_machines([document.data.get("machine") or {} for document in documents]),
        **{key: first.data.get(key) for key in SAME_IN_ALL_PARTS},
        "rows": [row.as_dict() for row in rows],
        "durations": dict(sorted(durations.items())),
        "skipped": [entry for entry in _merge_lists(documents, "skipped") if entry["nodeid"] not in judged],
        "notes": _merge_lists(documents, "notes"),
    }


def _check_shards(documents: Sequence[Document]) -> None:
    """Every part of a run that was cut, once. A file without a shard is a job of its own, as that on boards is."""
    shards = [(document.name, str(document.data["shard"])) for document in documents if document.data.get("shard")]
    seen: dict[str, str] = {}
    for name, shard in shards:
        if shard in seen:
            raise StoreError(f"{name}: shard {shard}, as {seen[shard]}; name each part once")
        seen[shard] = name
    totals = {shard.partition("/")[2] for shard in seen}
    if len(totals) > 1:
        raise StoreError(f"shards of {' and of '.join(sorted(totals))} parts; merge the parts of one run")
    bases = {str(d.data["basis"]): d.name for d in documents if d.data.get("shard") and d.data.get("basis")}
    if len(bases) > 1:
        raise StoreError(
            f"{' and '.join(bases.values())}: cut from other selections (-k, -m, paths) or by another --quarl-compare; "
            "cases are missing or run twice, so give every part the same"
        )
    missing = [f"{i}/{total}" for total in totals for i in range(1, int(total) + 1) if f"{i}/{total}" not in seen]
    if missing:
        raise StoreError(f"shard {', '.join(missing)} is missing: its job wrote no results; run it again")


def _merge_rows(documents: Iterable[Document]) -> list[Row]:
    rows: dict[tuple[str, str], tuple[str, Row]] = {}
    for document in documents:
        for row in document.rows:
            key = (row.nodeid, row.id)
            name, known = rows.setdefault(key, (document.name, row))
            if replace(known, seconds=row.seconds, processor=row.processor) != row:
                raise StoreError(f"{document.name}: {key[0]} differs from that of {name}; name each part once")
    return [rows[key][1] for key in sorted(rows)]


def _merge_machines(machines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What differs between machines is told by all its values."""
    keys = dict.fromkeys(key for machine in machines for key in machine)
    values = {key: {str(machine.get(key)): machine.get(key) for machine in machines} for key in keys}
    return {
        key: next(iter(found.values())) if len(found) == 1 else " | ".join(sorted(found))
        for key, found in values.items()
    }


def _merge_lists(documents: Iterable[Document], name: str) -> list[Any]:
    """Entries of all parts, each once, sorted."""
    found = {json.dumps(entry, sort_keys=True): entry for d in documents for entry in d.data.get(name, ())}
    return [found[key] for key in sorted(found)]
