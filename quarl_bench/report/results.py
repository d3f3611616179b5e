"""The results file: schema version, machine, commit, settings, rows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from quarl_bench.system.atomic import write_file
from quarl_bench.system.machine import describe_machine, read_commit
from quarl_bench.views.rows import SCHEMA_VERSION, Row


def build_results(
    rows: list[Row], settings: dict[str, Any], root: Path, durations: dict[str, float], **lists: list[Any]
) -> dict[str, Any]:
    """Rows, sorted by node id, with what they rest on: the same run gives the same rows whatever the workers."""
    commit = read_commit(root)
    seconds = {nodeid: round(duration, 3) for nodeid, duration in sorted(durations.items())}
    whole = [replace(row, commit=commit, seconds=seconds.get(row.nodeid)) for row in rows]
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": describe_machine(),
        "commit": commit,
        "settings": settings,
        "rows": [row.as_dict() for row in sorted(whole, key=lambda row: row.nodeid)],
        "durations": seconds,
    } | {name: sorted(values, key=json.dumps) for name, values in lists.items()}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write what `build_results` returned as JSON."""
    write_file(path, json.dumps(results, indent=1, allow_nan=False) + "\n")
