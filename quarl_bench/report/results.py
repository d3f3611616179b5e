"""The results file: schema version, machine, commit, settings, rows."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.system.atomic import write_file
from quarl_bench.system.machine import describe_machine, read_commit

if TYPE_CHECKING:  # what builds rows imports torch, and every pytest worker reads results files
    from quarl_bench.views.rows import Row

SCHEMA_VERSION = 1


def build_results(rows: "list[Row]", settings: dict[str, Any], root: Path, **lists: list[Any]) -> dict[str, Any]:
    """Rows, sorted by node id, with what they rest on: the same run gives the same rows whatever the workers."""
    return {
        "schema_version": SCHEMA_VERSION,
        "machine": describe_machine(),
        "commit": read_commit(root),
        "settings": settings,
        "rows": sorted(rows, key=lambda row: str(row["nodeid"])),
    } | {name: sorted(values, key=json.dumps) for name, values in lists.items()}


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Write what `build_results` returned as JSON."""
    write_file(path, json.dumps(results, indent=1, allow_nan=False) + "\n")
