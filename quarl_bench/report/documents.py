"""Files that become a page, or parts of one run: read, and refused when they are something else."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quarl_bench.errors import StoreError
from quarl_bench.report.results import SCHEMA_VERSION

# What parts are merged and runs compared by.
KEYS = {"rows": {"nodeid", "id", "verdict"}, "skipped": {"nodeid"}}
KINDS = ("results", "sweep", "weights", "check")


@dataclass(frozen=True)
class Document:
    """One file: results of pytest (`--quarl-json`), or what `quarl sweep`, `weights` or `check` printed as JSON."""

    name: str
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        """`results`, `sweep`, `weights` or `check`."""
        return str(self.data.get("kind", "results"))


def read_document(path: Path) -> Document:
    """A file of one of the four kinds; StoreError, with the remedy, for anything else."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; name a file of --quarl-json") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path}: not JSON ({error}); name a file of --quarl-json") from error
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        raise StoreError(f"{path}: holds no rows; name a file of --quarl-json, or of quarl sweep or weights --json")
    document = Document(path.name, data)
    if document.kind == "results" and data.get("schema_version") != SCHEMA_VERSION:
        raise StoreError(f"{path}: schema_version is not {SCHEMA_VERSION}; make it again with this version")
    if document.kind not in KINDS:
        raise StoreError(f"{path}: unknown kind {document.kind!r}; known are {', '.join(KINDS)}")
    return document


def read_results(path: Path) -> Document:
    """A file of pytest's --quarl-json; StoreError for anything else."""
    document = read_document(path)
    if document.kind != "results":
        raise StoreError(f"{path}: what quarl {document.kind} printed; name a file of pytest's --quarl-json")
    for name, keys in KEYS.items():
        entries = document.data.get(name, [])
        if not isinstance(entries, list) or not all(
            isinstance(entry, dict) and keys <= entry.keys() for entry in entries
        ):
            raise StoreError(f"{path}: {name} without {', '.join(sorted(keys))}; restore it, or run pytest again")
    damaged = next((name for name, fine in _check_values(document.data) if not fine), None)
    if damaged:
        raise StoreError(f"{path}: {damaged} of another type; restore it, or run pytest again")
    return document


def _check_values(data: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What comparisons and shards compute with, and whether it is what they need."""
    for name in ("settings", "machine", "durations"):
        yield name, isinstance(data.get(name, {}), dict)
    yield "durations", all(_is_number(s) and 0 <= s < math.inf for s in data.get("durations", {}).values())
    for row in data["rows"]:
        limits = row.get("interval")
        yield f"estimate of {row['id']}", row.get("estimate") is None or _is_number(row["estimate"])
        paired = isinstance(limits, list) and len(limits) == 2 and all(map(_is_number, limits))
        yield f"interval of {row['id']}", limits is None or paired


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)
