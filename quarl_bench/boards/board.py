"""A board: where it is, how to reach it, and what it must be. Boards are described in a TOML file, one table each."""

import difflib
import math
import sys
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from quarl_bench.errors import MissingBoard, SpecError
from quarl_bench.spec import ID_PART, LOCAL, Source
from quarl_bench.system.registry import Registry
from quarl_bench.system.toml_file import read_toml


@dataclass(frozen=True)
class Transport:
    """How a kind of board is reached: `open` gives a `transport.Channel` to a board, over which nothing is sent yet."""

    name: str
    open: Callable[["Board"], Any]
    needs: tuple[str, ...] = ()  # keys that a board of the file has to have
    source: Source = Source.MEASURED  # what a number from such a board is; emulated ones are never timed
    here: bool = False  # whether it is this machine, whose Python it then has


TRANSPORTS = Registry(
    "transport",
    "quarl_bench.transports",
    Transport,
    {name: f"quarl_bench.boards.transport:{name.upper()}" for name in (LOCAL, "ssh", "emulated")},
)


@dataclass(frozen=True)
class Board:
    """One board; hw/boards.example.toml says what each key means."""

    name: str
    transport: str
    host: str = ""
    port: int = 0
    options: tuple[str, ...] = ()
    architecture: str = ""
    python: str = "python3"
    folder: str = "/tmp"  # noqa: S108  (what is made here is made with mkdir and mode 0700)
    runtime: str = ""
    threads: int = 1
    quiet: float = 0.1
    power: str = ""
    rootfs: str = ""
    cpu: str = "max"

    @property
    def source(self) -> Source:
        """What a number from this board is."""
        return TRANSPORTS.find(self.transport).source


THIS_MACHINE = Board(LOCAL, LOCAL, python=sys.executable)


def read_boards(path: Path) -> dict[str, Board]:
    """The boards of a file, by name, and `local`; SpecError with file, board and key for what is ill-formed."""
    tables = read_toml(path, f"board file {path}", "pass a file like hw/boards.example.toml")
    return {LOCAL: THIS_MACHINE} | {name: _read_board(path, name, table) for name, table in tables.items()}


def find_board(name: str, path: Path | None) -> Board:
    """The board called `name`, of the file at `path` if there is one; MissingBoard when it is in neither."""
    boards = {LOCAL: THIS_MACHINE} if path is None else read_boards(path)
    if name not in boards:
        where = f"{path} has {', '.join(boards)}"
        if path is None:
            where = "no board file: pass --quarl-boards=FILE (`quarl board`: --boards FILE)"
        near = difflib.get_close_matches(name, boards, 1)
        raise MissingBoard(name, f"did you mean {near[0]!r}? {where}" if near else where)
    return boards[name]


def _read_board(path: Path, name: str, table: Any) -> Board:
    where = f"board file {path}, board {name!r}"
    if not ID_PART.fullmatch(name):
        raise SpecError(f"{where}: a name is one or more of [a-z0-9], because it ends case ids; rename it")
    if not isinstance(table, dict):
        raise SpecError(f"{where}: must be a table, [{name}]")
    known = {field.name: field for field in fields(Board) if field.name != "name"}
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
            raise SpecError(f"{where}, key {key!r}: is unknown; {hint}")
        _check_type(f"{where}, key {key!r}", known[key].default, value)
    said = table.get("transport")
    if said not in TRANSPORTS:
        what = "is missing" if said is None else f"{said!r} is unknown"
        raise SpecError(f"{where}, key 'transport': {what}; known are {', '.join(TRANSPORTS)}")
    transport = TRANSPORTS.find(str(said))
    for key in transport.needs:
        if not table.get(key):
            raise SpecError(f"{where}, key {key!r}: is missing; transport {said} needs it")
    values: dict[str, Any] = {"python": sys.executable} if transport.here else {}
    return Board(**(values | table | {"name": name, "options": tuple(table.get("options", ()))}))


def _check_type(where: str, default: Any, value: Any) -> None:
    wanted = str if default is MISSING else type(default)  # only `transport` has no default
    if wanted is tuple:
        if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            raise SpecError(f"{where}: must be a list of strings")
        return
    number = wanted in (int, float) and isinstance(value, int | float) and not isinstance(value, bool)
    if not (isinstance(value, wanted) or (wanted is float and number)) or isinstance(value, bool):
        raise SpecError(f"{where}: must be of type {wanted.__name__}")
    if number and (value < 0 or math.isnan(value)):
        raise SpecError(f"{where}: {value} is not a number of at least 0")
