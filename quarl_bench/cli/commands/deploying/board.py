"""`quarl board`: is a board there, what state is it in, and does an artefact run on it?"""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quarl_bench.cli.arguments import new_command, read_path
from quarl_bench.cli.printing import print_result
from quarl_bench.system.atomic import open_file
from quarl_bench.system.bars import open_bar, step

if TYPE_CHECKING:
    from quarl_bench.boards.timing import BoardComparison, State

DIFFERS, VOID = 1, 3
EXIT_CODES = (
    "exit codes: 0 equal, and times that count; 1 outputs differ from the golden ones; 2 wrong input, or no board; "
    "3 times are void; 130 interrupted"
)


def add_command(commands: Any) -> None:
    """Add `quarl board`: a board's name, and none, one or two artefacts to run on it."""
    command = new_command(commands, "board", run,
        "quarl board --boards boards.toml raspi3b fp32-artefact int8-artefact", EXIT_CODES)  # fmt: skip
    command.add_argument("name", help="a board of the file, or `local`, this machine")
    command.add_argument(
        "artefacts", nargs="*", type=read_path, metavar="ARTEFACT",
        help="folder of `quarl deploy`: one is checked, two are checked and timed in turns. Default: none.",
    )  # fmt: skip
    command.add_argument(
        "--boards", type=read_path, metavar="FILE", help="board file, as hw/boards.example.toml. Default: only `local`."
    )
    command.add_argument(
        "--sessions", type=read_path, metavar="FILE",
        help="with two artefacts: CSV of sessions of this comparison, which this one joins if its times count and the "
        "last one is an hour old; the limits of the ratio then cover all. Default: this session alone.",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Describe the state; check or compare the artefacts: 1 where outputs differ, 3 where times are void."""
    from quarl_bench.backends.artefact import read_artefact
    from quarl_bench.boards.board import find_board
    from quarl_bench.boards.session import open_session
    from quarl_bench.boards.session_file import check_file
    from quarl_bench.boards.timing import IDENTITY, RATIOS, TimingPlan
    from quarl_bench.errors import SpecError

    if len(options.artefacts) > 2:
        raise SpecError(f"{len(options.artefacts)} artefacts; one is checked, two are compared")
    if options.sessions is not None and len(options.artefacts) != 2:
        raise SpecError("--sessions is of a timing: name two artefacts, or leave it out")
    board = find_board(options.name, options.boards)
    for folder in options.artefacts:
        read_artefact(folder)  # here, where the folder has the name that was typed
    if options.sessions is not None:
        check_file(open_file(options.sessions), IDENTITY, RATIOS)
    code = 0
    with open_session(board) as session:
        result: dict[str, Any] = {"board": board.name, "source": str(board.source), "state": asdict(session.state)}
        lines = [f"{board.name}: {_describe_state(session.state)}"]
        if len(options.artefacts) == 1:
            check = session.check(options.artefacts[0])
            result["check"] = asdict(check)
            lines.append(str(check))
            code = DIFFERS if check.first else 0
        elif options.artefacts:
            plan = TimingPlan()
            with open_bar(2 * plan.blocks, "block", board.name) as bar:
                artefacts = options.artefacts[0], options.artefacts[1]
                compared = session.compare(artefacts, plan, progress=lambda _: step(bar))
            if options.sessions is not None and compared.timed:
                compared, note = _join_sessions(compared, options.sessions)
                lines += note
            result |= _summarise(compared)
            lines += _list_lines(compared)
            differs = any(timing.check.first for timing in (compared.first, compared.second))
            code = DIFFERS if differs else VOID if compared.faults else 0
    print_result(options, result, "\n".join(lines))
    return code


def _describe_state(state: "State") -> str:
    runtimes = ", ".join(f"{name} {version}" for name, version in state.runtimes.items())
    details = [
        f"{state.processor}, {state.architecture}, {state.cores} cores ({' '.join(state.features)})",
        f"Python {state.python}, {runtimes}, compiler {state.compiler or 'none'}",
        f"others use {state.others:.2f} cores, governor {state.governor or 'unknown'}",
        f"{state.memory_free >> 20:,} of {state.memory >> 20:,} MiB free",
    ]
    if state.celsius is not None:
        details.append(f"{state.celsius:.0f} C")
    if state.throttled:
        details.append(f"throttling flags {state.throttled:#x}")
    return "; ".join(details)


def _list_lines(compared: "BoardComparison") -> list[str]:
    from quarl_bench.boards.speedup import describe_timing, explain_speed

    lines = [str(timing.check) for timing in (compared.first, compared.second)]
    if compared.timed:
        lines += [describe_timing(timing) for timing in (compared.first, compared.second)]
        estimate, low, high = compared.find_speedup()
        lines.append(f"ratio {estimate:.3g}x [{low:.3g}, {high:.3g}], {compared.sessions}")
    return [*lines, explain_speed(compared), *(f"VOID: {fault}" for fault in compared.faults)]


def _join_sessions(compared: "BoardComparison", path: Path) -> "tuple[BoardComparison, list[str]]":
    """The comparison with the earlier sessions of the file, to which it is added; a note where it is not."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from quarl_bench.boards.session_file import read_sessions, store_session

    now, identity, ratios = datetime.now(UTC), compared.identify(), compared.list_ratios()
    note = [] if compared.faults else [f"{path}: this session was added"]
    sessions = read_sessions(path, identity, ratios, now)
    if not compared.faults and not store_session(path, identity, ratios, now):
        note = [f"{path}: not added, the last session is less than an hour old"]
    return replace(compared, sessions=sessions), note


def _summarise(compared: "BoardComparison") -> dict[str, Any]:
    from quarl_bench.report.rows.boards import summarise_timing

    timings = [summarise_timing(compared, timing) for timing in (compared.first, compared.second)]
    ratio = list(compared.find_speedup()) if compared.timed else None
    told = {"sessions": len(compared.sessions.earlier) + 1}
    return {"timings": timings, "ratio": ratio, "faults": list(compared.faults)} | told
