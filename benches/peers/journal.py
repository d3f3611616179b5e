"""What a script has measured so far, a line for each number as soon as it is there.

The same command, at the same commit on the same machine, goes on where its last process was killed. Lines lie beside
the file that they become, and are gone when it is written.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from quarl_bench.report.peers import UNFINISHED, PeerRun
from quarl_bench.system.atomic import write_file
from quarl_bench.system.load import LoadMeter

OWN = ("date", "load", "seconds", "others", "contests")  # of a process; the rest tells runs apart


class Journal:
    """Of one run, over all of its processes; without an `output` nothing is kept. `run` is as the first began."""

    def __init__(self, output: Path | None, run: PeerRun) -> None:
        self.run, self._output = run, output
        self._known: dict[str, Any] = {}
        self._seconds = self._used = 0.0  # of processes that were killed
        self._began, self._meter = time.monotonic(), LoadMeter()
        if self._path:
            self._go_on(self._path)

    def recall(self, measure: Callable[[], Any], *key: object) -> Any:
        """What was measured under `key`, in the types of JSON; measured now, and kept, where it never was."""
        name = json.dumps(key)
        if name not in self._known:
            written = json.dumps(measure())
            self._known[name] = json.loads(written)
            seconds, others = self.read()
            self._append(f'{{"key": {name}, "value": {written}, "seconds": {seconds:.1f}, "others": {others:.4f}}}')
        return self._known[name]

    def read(self) -> tuple[float, float]:
        """Seconds that all processes took, and the cores that anything else used meanwhile."""
        seconds = time.monotonic() - self._began
        total = self._seconds + seconds
        return total, (self._used + seconds * self._meter.read()) / total

    def finish(self) -> None:
        """Remove what is kept: the run is stored."""
        if self._path:
            self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path | None:
        return self._output and self._output.with_name(self._output.name + UNFINISHED)

    def _go_on(self, path: Path) -> None:
        """Read what an earlier process of this run has left; the line that it was killed in does not count."""
        head, *lines = _read_lines(path) or [{}]
        if _tell_apart(head) == _tell_apart(self.run.as_dict()):
            self.run = PeerRun.from_dict(head)
            self._known = {json.dumps(line["key"]): line["value"] for line in lines}
            if lines:
                self._seconds = lines[-1]["seconds"]
                self._used = self._seconds * lines[-1]["others"]
                sys.stderr.write(f"{path}: goes on behind {len(lines)} measurements\n")
        elif path.exists():
            sys.stderr.write(f"{path}: of another command, commit or machine; measured anew\n")
            lines = []
        write_file(path, "".join(f"{json.dumps(line)}\n" for line in (self.run.as_dict(), *lines)))

    def _append(self, line: str) -> None:
        if self._path:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
                file.flush()
                os.fsync(file.fileno())


def _tell_apart(run: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    told: dict[str, Any] = json.loads(json.dumps({name: value for name, value in run.items() if name not in OWN}))
    return told


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Those that are whole; none where there is no file, or one of another kind."""
    found: list[dict[str, Any]] = []
    with suppress(OSError, ValueError):
        found.extend(map(json.loads, path.read_text(encoding="utf-8").splitlines()))
    return found if all(isinstance(line, dict) for line in found) else []
