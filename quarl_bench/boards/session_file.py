"""Stored sessions of a timing: a CSV with a line for each, of what was timed where, when, and with which ratios."""

import csv
import io
import math
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from quarl_bench.errors import StoreError
from quarl_bench.judging.times.sessions import APART, Ratios, Session, Sessions
from quarl_bench.system.atomic import lock_file, write_file

WHEN = "when"
Identity = Mapping[str, object]  # columns that say what was timed on which machine


def check_file(path: Path, identity: Collection[str], names: Collection[str]) -> None:
    """StoreError where there is a file, and no session with this identity and these ratios could join it."""
    if path.exists():
        for line in _read_lines(path, [WHEN, *identity, *names]):
            _parse(path, line, names)


def read_sessions(path: Path, identity: Identity, names: Collection[str], now: datetime) -> Sessions:
    """The sessions of the file that timed the same, an hour or more before `now`; none where there is no file.

    `names` are the ratios that each has to hold. StoreError, with the line, for a file of another form.
    """
    lines = _read_lines(path, [WHEN, *identity, *names]) if path.exists() else []
    mine = [line for line in lines if all(line[name] == str(value) for name, value in identity.items())]
    found = [_parse(path, line, names) for line in mine]
    return Sessions(tuple(session for session in found if now - session.when >= APART), now.date())


def store_session(path: Path, identity: Identity, ratios: Ratios, now: datetime) -> bool:
    """Add a line for a session; False, with nothing written, where one of the same things is less than an hour old.

    Of processes that do so at once, each waits for the others. StoreError for a file of another form.
    """
    with lock_file(path):
        columns = [WHEN, *identity, *ratios]
        lines = _read_lines(path, columns) if path.exists() else []
        mine = [line for line in lines if all(line[name] == str(value) for name, value in identity.items())]
        if any(abs(now - _parse(path, line, ratios).when) < APART for line in mine):
            return False
        numbers = {name: f"{value:.6g}" for name, value in ratios.items()}
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*lines, {WHEN: f"{now:%Y-%m-%dT%H:%M}Z", **identity, **numbers}])
        write_file(path, text.getvalue())
        return True


def _read_lines(path: Path, columns: list[str]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            lines = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(f"{path}: no file of sessions ({error}); name one of `quarl board --sessions`") from error
    if reader.fieldnames != columns or any(None in line or None in line.values() for line in lines):
        raise StoreError(f"{path}: no sessions of this comparison: its columns are to be {', '.join(columns)}")
    return lines


def _parse(path: Path, line: dict[str, str], names: Collection[str]) -> Session:
    try:
        when = datetime.strptime(line[WHEN], "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)
        ratios = {name: float(line[name]) for name in names}
    except ValueError as error:
        raise StoreError(f"{path}: session {line[WHEN]!r}: {error}; mend or drop the line") from error
    for name, value in ratios.items():
        if not 0 < value < math.inf:
            raise StoreError(f"{path}: session {line[WHEN]!r}: {name} is {value}, no ratio; drop the line")
    return Session(when, ratios)
