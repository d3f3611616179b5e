"""A session on a board: a lease, a folder with the runner, artefacts in it; nothing of it is left when it ends."""

import contextlib
import getpass
import hashlib
import importlib.resources
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from quarl_bench.backends.files import MANIFEST
from quarl_bench.boards.board import Board
from quarl_bench.boards.timing import (
    Block,
    BoardComparison,
    GoldenCheck,
    State,
    Timing,
    TimingPlan,
    read_block,
    read_check,
    read_state,
)
from quarl_bench.boards.transport import ANSWER, Channel, open_channel
from quarl_bench.errors import BoardError
from quarl_bench.spec import Source

RUNNER = "run_policy.py"
LEASE_SECONDS = 600.0  # seconds that a killed run can block a board
RETRY_SECONDS = 2.0  # seconds between two attempts to take a board from a process of the same run
OVERHEAD = 60.0  # seconds that a process may take to start, to load, and to finish a slow call
Progress = Callable[[str], None]
Value = TypeVar("Value")


@dataclass
class Session:
    """A leased board with the runner on it. `state` is what the board looked like at the beginning."""

    channel: Channel
    state: State
    lease: dict[str, str]
    pushed: dict[str, str] = field(default_factory=dict)  # folder on the board, by hash

    @property
    def board(self) -> Board:
        """The board at the other end of the session's channel."""
        return self.channel.board

    def check(self, artefact: Path) -> GoldenCheck:
        """Re-run the golden pairs of the artefact in this folder on the board."""
        where = self._push(artefact)
        answer = self.channel.call([self._runner, "check", where, self.board.runtime], timeout=10 * ANSWER)
        return _parse_answer(self.channel, read_check, answer)

    def compare(
        self,
        artefacts: tuple[Path, Path],
        plan: TimingPlan | None = None,
        *,
        progress: Progress = lambda _: None,
        cgroup: str = "",
    ) -> BoardComparison:
        """Check and time two artefacts in turns; `progress` is told of every block.

        `cgroup`: folder of a control group on the board that the timed processes join.
        """
        if self.board.source is Source.EMULATED:
            raise self.channel.error("an emulator's times mean nothing; use its golden check and instruction counts")
        plan = plan or TimingPlan()
        request = self._request(artefacts, plan, cgroup)
        states: list[State] = []
        checks: list[GoldenCheck] = []
        blocks: tuple[list[Block], list[Block]] = ([], [])
        patience = plan.warmup + plan.seconds + OVERHEAD
        for line in self.channel.stream([self._runner, "measure", json.dumps(request)], patience):
            event, index, report = _parse_answer(self.channel, _read_event, line)
            if event == "state":
                states.append(_parse_answer(self.channel, read_state, report))
            elif event == "check":
                checks.append(_parse_answer(self.channel, read_check, report))
            else:
                blocks[index].append(_parse_answer(self.channel, read_block, report))
                progress(f"{self.board.name}: {checks[index].scheme}, block {len(blocks[index])} of {plan.blocks}")
        if len(states) != 2 or len(checks) != 2:
            raise self.channel.error("the run ended too early; look at the board's memory and its power supply")
        first, second = (Timing(check, tuple(found)) for check, found in zip(checks, blocks, strict=True))
        return BoardComparison(self.board, states[0], states[1], first, second)

    @property
    def _runner(self) -> str:
        return f"{self.lease['folder']}/{RUNNER}"

    def _request(self, artefacts: Sequence[Path], plan: TimingPlan, cgroup: str) -> dict[str, Any]:
        board = self.board
        span = len(artefacts) * (plan.blocks * (plan.warmup + plan.seconds + OVERHEAD) + OVERHEAD)
        return {
            "artefacts": [self._push(artefact) for artefact in artefacts],
            "blocks": plan.blocks,
            "quiet": board.quiet,
            "insist": plan.insist,
            "power": board.power,
            "cgroup": cgroup,
            "lease": self.lease["lease"],
            "token": self.lease["token"],
            "lease_seconds": LEASE_SECONDS + span,
            "how": {
                "runtime": board.runtime,
                "threads": board.threads,
                "warmup": plan.warmup,
                "calls": plan.calls,
                "seconds": plan.seconds,
            },
        }

    def _push(self, artefact: Path) -> str:
        """The artefact's folder on the board, of what the manifest names; what is there already is not sent again."""
        try:
            manifest = (artefact / MANIFEST).read_bytes()
            name = hashlib.sha256(manifest).hexdigest()[:16]
            files = [artefact / file for file in _list_files(manifest)]
            size = sum(file.stat().st_size for file in files)
        except OSError as error:
            raise self.channel.error(f"{error.filename}: {error.strerror}; name an artefact's folder") from error
        except (ValueError, TypeError, KeyError) as error:
            raise self.channel.error(f"{artefact / MANIFEST}: no artefact's ({error!r}); export again") from error
        if name not in self.pushed:
            folder, free = self.board.folder, self.state.disk_free
            if size > free:
                raise self.channel.error(
                    f"disk full: {free // 1000:,} kB are free in {folder}, {artefact.name} has {size // 1000:,} kB; "
                    "free space there, or set `folder`"
                )
            where = f"{self.lease['folder']}/{name}"
            with tempfile.TemporaryDirectory(prefix="quarl-push-") as work:
                picked = Path(work) / artefact.resolve().name  # messages name it
                try:
                    picked.mkdir()
                    for file in files:
                        shutil.copyfile(file, picked / file.name)
                except OSError as error:
                    raise self.channel.error(f"{error.filename}: {error.strerror}; mend this file here") from error
                self.channel.push(picked, where)
            self.pushed[name] = where
        return self.pushed[name]


@contextlib.contextmanager
def open_session(board: Board, run: str = "", wait: float = 0.0) -> Iterator[Session]:
    """Lease `board`, check that it can do the work, and put the runner there; all is removed at the end.

    Processes of one `run` wait up to `wait` seconds for each other. BoardError, in one line, for a board that is
    silent, taken, of another architecture than the board file says, or without a runtime.
    """
    channel = open_channel(board)
    try:
        state = read_board_state(channel)
        lease = _take_lease(channel, run, wait)
        try:
            channel.push(find_runner(), f"{lease['folder']}/{RUNNER}")
            yield Session(channel, state, lease)
        finally:
            _release_lease(channel, lease)
    finally:
        channel.close()


def ask_state(board: Board) -> State:
    """What `board` says about itself, without a lease; BoardError, in one line, as `open_session`."""
    with contextlib.closing(open_channel(board)) as channel:
        return read_board_state(channel)


def read_board_state(channel: Channel) -> State:
    """What the board says about itself, held against the board file; nothing is written on it."""
    board = channel.board
    answer = channel.call(["-", "state", board.folder], script=find_runner().read_bytes())
    state = _parse_answer(channel, read_state, answer)
    if board.architecture and state.architecture != board.architecture:
        raise channel.error(f"is {state.architecture}, not {board.architecture} as its board file says; mend the file")
    runtimes = [name for name in state.runtimes if name != "numpy"]
    able = board.runtime in runtimes if board.runtime else bool(runtimes or state.compiler)
    if "numpy" not in state.runtimes or not able:
        raise channel.error(
            f"{board.python} has no {board.runtime or 'TFLite runtime'} with NumPy; there, pip install "
            f"{board.runtime or 'ai-edge-litert'}, or 'tflite-runtime' 'numpy<2' up to Python 3.11"
        )
    return state


def find_runner() -> Path:
    """The script that is pushed to boards."""
    return Path(str(importlib.resources.files("quarl_bench"))) / "hw" / "raspi" / RUNNER


def _take_lease(channel: Channel, run: str, wait: float) -> dict[str, str]:
    owner = f"{getpass.getuser()} on {platform.node()}"
    request = json.dumps({"folder": channel.board.folder, "owner": owner, "run": run, "seconds": LEASE_SECONDS})
    end = time.monotonic() + wait
    while True:
        answer = channel.call(["-", "take", request], script=find_runner().read_bytes())
        lease: dict[str, Any] = _parse_answer(channel, dict, answer)
        held = lease.get("held")
        if held is None:
            return lease
        if not run or held["run"] != run or time.monotonic() > end:
            raise channel.error(
                f"in use by {held['owner']}, at most for another {held['seconds']:.0f} s; wait, or use another board"
            )
        time.sleep(RETRY_SECONDS)


def _release_lease(channel: Channel, lease: dict[str, str]) -> None:
    """Remove lease and folder; where the board is gone, its runner or the next lease does."""
    with contextlib.suppress(BoardError):
        channel.call(["-", "release", lease["lease"], lease["token"]], script=find_runner().read_bytes())


def _list_files(manifest: bytes) -> list[str]:
    """What an artefact consists of: a build's output may lie beside it."""
    said = json.loads(manifest)
    names = [MANIFEST, said["model"]["file"], said["golden"]["file"], *said.get("others", {})]
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"{name!r} lies outside the folder")
    return names


def _read_event(report: dict[str, Any]) -> tuple[str, int, dict[str, Any]]:
    rest = {name: value for name, value in report.items() if name not in ("event", "artefact")}
    index = int(report.get("artefact", 0))
    if index not in (0, 1):
        raise ValueError(f"artefact {index} of two")
    return str(report["event"]), index, rest


def _parse_answer(channel: Channel, read: Callable[[dict[str, Any]], Value], answer: str | dict[str, Any]) -> Value:
    """What a report says; BoardError when it is no report."""
    try:
        return read(json.loads(answer) if isinstance(answer, str) else answer)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise channel.error(f"answers what no runner of this version says ({error!r}); is {RUNNER} intact?") from error
