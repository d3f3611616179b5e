"""The results file: schema version, machine, commit, settings, rows."""

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.atomic import write_file
from quarl_bench.processor import read_processor

if TYPE_CHECKING:  # what builds rows imports torch, and every pytest worker reads results files
    from quarl_bench.report.rows import Row

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


def describe_machine() -> dict[str, Any]:
    """What numbers may depend on, without anything that identifies a person."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": read_processor("model name") or platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def read_commit(root: Path) -> str:
    """The checkout's commit, with `+` when it has changes; empty outside a checkout."""
    try:
        commit = _git(root, "rev-parse", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
