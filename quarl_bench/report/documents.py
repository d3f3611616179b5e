"""Files that become a page, or parts of one run: read, and refused when they are something else."""

import json
import lzma
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from quarl_bench.errors import SpecError, StoreError
from quarl_bench.views.rows import READABLE, Row

KINDS = ("results", "sweep", "weights", "check")
COMPRESSED = ".xz"  # so ends the name of a file that is packed
SHARD = re.compile(r"[1-9]\d{0,5}/[1-9]\d{0,5}")  # part of how many
LARGEST = 2**28  # bytes of a file, unpacked; a whole nightly has a tenth


@dataclass(frozen=True)
class Document:
    """One file: results of pytest (`--quarl-json`), or what `quarl sweep`, `weights` or `check` printed as JSON."""

    name: str
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        """`results`, `sweep`, `weights` or `check`."""
        return str(self.data.get("kind", "results"))

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows of results; StoreError for one that is ill-formed."""
        try:
            return tuple(map(Row.from_dict, self.data["rows"]))
        except SpecError as error:
            raise StoreError(f"{self.name}: a row is ill-formed: {error}; restore it, or run pytest again") from error


def read_document(path: Path) -> Document:
    """A file of one of the four kinds, as JSON or its .xz; StoreError, with the remedy, for anything else."""
    constants: list[str] = []

    def note(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        data = json.loads(_read_text(path), parse_constant=note)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; name a file of --quarl-json") from error
    except (ValueError, RecursionError, EOFError, lzma.LZMAError) as error:
        raise StoreError(f"{path}: not JSON, or cut short ({error}); name a file of --quarl-json") from error
    if not isinstance(data, dict) or not isinstance(data.get("rows"), list):
        raise StoreError(f"{path}: holds no rows; name a file of --quarl-json, or of quarl sweep or weights --json")
    if constants:
        raise StoreError(f"{path}: {_place_constant(data['rows'], constants[0])}; restore it, or run pytest again")
    document = Document(path.name, data)
    if document.kind == "results" and data.get("schema_version") not in READABLE:
        known = " or ".join(map(str, READABLE))
        raise StoreError(
            f"{path}: schema_version is {data.get('schema_version')!r}, not {known}; make it again with this version"
        )
    if document.kind not in KINDS:
        raise StoreError(f"{path}: unknown kind {document.kind!r}; known are {', '.join(KINDS)}")
    return document


def read_results(path: Path) -> Document:
    """A file of pytest's --quarl-json; StoreError for anything else."""
    document = read_document(path)
    if document.kind != "results":
        raise StoreError(f"{path}: what quarl {document.kind} printed; name a file of pytest's --quarl-json")
    _ = document.rows  # read now: what is ill-formed is told before anything is compared
    damaged = next((name for name, fine in _check_values(document.data) if not fine), None)
    if damaged:
        raise StoreError(f"{path}: {damaged} of another type; restore it, or run pytest again")
    return document


def list_machines(documents: Iterable[Document]) -> list[str]:
    """The different machines that results were measured on, in words."""
    told = [dict(document.data.get("machine") or {}) for document in documents]
    return [*dict.fromkeys(f"{each.get('processor')} ({each.get('cores')} cores)" for each in told if each)]


def _check_values(data: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """What comparisons and shards compute with, and whether it is what they need."""
    for name in ("settings", "machine", "durations"):
        yield name, isinstance(data.get(name, {}), dict)
    yield "durations", all(isinstance(s, int | float) and 0 <= s < math.inf for s in data.get("durations", {}).values())
    skipped = data.get("skipped", [])
    yield "skipped", isinstance(skipped, list) and all(isinstance(e, dict) and "nodeid" in e for e in skipped)
    yield "notes", isinstance(data.get("notes", []), list)
    yield "shard", data.get("shard") is None or SHARD.fullmatch(str(data["shard"])) is not None


def _read_text(path: Path) -> bytes:
    """What the file holds, unpacked; ValueError beyond LARGEST bytes."""
    with lzma.open(path) if path.suffix == COMPRESSED else path.open("rb") as file:
        data: bytes = file.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"more than {LARGEST:,} bytes")
    return data


def _place_constant(rows: list[Any], name: str) -> str:
    """Where a number that is not finite, written as `name`, stands."""
    for row in rows:
        for key, value in row.items() if isinstance(row, dict) else ():
            if not _is_finite(value):
                return f"row {row.get('id')!r} of claim {row.get('claim')!r}, field {key!r}: it holds {name}"
    return f"it holds {name}"


def _is_finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
