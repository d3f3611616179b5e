"""The `times_regression` and `board_verdict` fixtures: did our own time move, and does the sentence hold there?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from quarl_bench.boards.judgements import Faster, Fits, Grows
from quarl_bench.boards.memory import LimitedComparison
from quarl_bench.boards.session_file import read_sessions, store_session
from quarl_bench.boards.timing import RATIOS, BoardComparison, Timing
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.modes import describe
from quarl_bench.plugin.regression import StoredNumbers
from quarl_bench.plugin.verdict import VerdictFixture
from quarl_bench.report.rows.boards import show_board
from quarl_bench.report.rows.builder import build_row, show_cells
from quarl_bench.spec import Verdict

if TYPE_CHECKING:
    from quarl_bench.judging.claim import JudgedCase, JudgedClaim

TIME_TOLERANCE = 0.25  # relative, beside the stored standard error: that of blocks says nothing about another day
IDENTITY = ("machine", "cores", "artefact", "scheme", "runtime", "kernel", "threads", "blocks")


@dataclass(frozen=True)
class BoardRun:
    """A policy's two artefacts, compared on a board."""

    compared: BoardComparison
    trained: bool


class TimesRegression(StoredNumbers):
    """Compares median times with those stored for the same machine, runtime and artefact; void times are not stored."""

    def check(self, run: BoardRun) -> None:  # type: ignore[override]
        """Fail when a time moved; note "no-baseline", "mismatch" (another machine or runtime) or "void" instead."""
        __tracebackhide__ = True
        if run.compared.faults or not run.compared.timed:
            self._note_state("void")
            return
        if self._regenerates:
            name = self.request.getfixturevalue("case").id
            path = find_sessions(self.request.node.path, name, self._profile)
            store_session(path, run.compared.identify(), run.compared.list_ratios(), datetime.now(UTC))
        self._compare(tabulate(run.compared), IDENTITY)

    def _tolerances(self, obtained: pd.DataFrame, expected: pd.DataFrame) -> dict[str, Any]:  # noqa: ARG002
        error = 2 * expected["p50_se_us"].to_numpy(dtype=np.float64)
        loose: dict[str, Any] = {"rtol": 1e9, "atol": 1e9}  # there to be read
        return {
            "p50_us": {"rtol": TIME_TOLERANCE, "atol": error},
            "peak_rss_mib": {"rtol": TIME_TOLERANCE, "atol": 0.0},
            **dict.fromkeys(("p50_se_us", "p99_us"), loose),
        }


class BoardVerdict(VerdictFixture):
    """Judges the item's case, or its policies, on a board; the row says what explains the ratio."""

    def check(self, run: BoardRun) -> Verdict:
        """Judge the ratio that the item's claim is about: of times, of file sizes, or of peak resident memory."""
        judged: JudgedCase = self._request.getfixturevalue("case")
        compared = self._recall(run.compared, judged.id)
        verdict = judged.claim.require(Faster).decide_board(compared)
        row = build_row(judged, verdict, **show_board(judged, compared, verdict, trained=run.trained))
        return self._conclude(judged, row, verdict, row.line, foreign=self._find_foreign([judged.id], run))

    def check_limited(self, found: LimitedComparison) -> Verdict:
        """Judge what little memory does; an emulation is no machine's own, and refuted it fails on every one."""
        judged: JudgedCase = self._request.getfixturevalue("case")
        verdict = judged.claim.require(Fits).decide_limited(found)
        shown = show_board(judged, found.limited, verdict, trained=False, memory=found.memory)
        return self._conclude(judged, build_row(judged, verdict, **shown), verdict, shown["line"])

    def check_policies(self, runs: Sequence[BoardRun]) -> Verdict:
        """Judge how ratios grow over the policies of a claim."""
        judged: JudgedClaim = self._request.getfixturevalue("claim")
        named = zip(judged.cases, runs, strict=True)
        verdict = judged.claim.require(Grows).decide_boards(
            [self._recall(run.compared, case.id) for case, run in named]
        )
        processor = runs[0].compared.after.processor
        row = build_row(judged, verdict, **show_cells(Evidence()) | {"processor": processor})
        foreign = self._find_foreign([case.id for case in judged.cases], runs[0])
        return self._conclude(judged, row, verdict, describe(verdict), foreign=foreign)

    def _recall(self, compared: BoardComparison, name: str) -> BoardComparison:
        """The comparison with the sessions of the case `name` that are stored for its machine."""
        if not compared.timed:
            return compared
        path = find_sessions(self._request.node.path, name, self._profile)
        sessions = read_sessions(path, compared.identify(), RATIOS, datetime.now(UTC))
        return replace(compared, sessions=sessions)

    def _find_foreign(self, names: Sequence[str], run: BoardRun) -> str:
        """The machine, where some of these cases have no stored session on it."""
        machine = run.compared.machine
        return "" if all(self._is_stored(name, machine) for name in names) else machine


def find_sessions(bench: Path, name: str, profile: str) -> Path:
    """The stored sessions of what is called `name`, a case or a device, beside its bench, as pytest-datadir has it."""
    return bench.with_suffix("") / f"{name}.{profile}.sessions.csv"


def tabulate(compared: BoardComparison) -> pd.DataFrame:
    """One line per artefact: machine, runtime, median and its standard error over blocks, p99, memory."""
    return pd.DataFrame([_list_columns(compared, timing) for timing in (compared.first, compared.second)])


def _list_columns(compared: BoardComparison, timing: Timing) -> dict[str, Any]:
    state = compared.after
    return {
        "machine": compared.machine,
        "cores": state.cores,
        "artefact": timing.check.golden_sha256[:16],
        "scheme": timing.check.scheme,
        "runtime": timing.check.runtime,
        "kernel": timing.check.kernel,
        "threads": compared.board.threads,
        "blocks": len(timing.blocks),
        "p50_us": timing.find_ns("p50") / 1e3,
        "p50_se_us": timing.spread_ns / 1e3,
        "p99_us": timing.find_ns("p99") / 1e3,
        "peak_rss_mib": timing.peak_rss / 2**20,
    }
