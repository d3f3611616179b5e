"""The `times_regression` and `board_verdict` fixtures: did our own time move, and does the sentence hold there?"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from quarl_bench.boards.judgements import Faster
from quarl_bench.boards.timing import BoardComparison, Timing
from quarl_bench.plugin.regression import StoredNumbers
from quarl_bench.plugin.verdict import VerdictFixture
from quarl_bench.report.board_rows import show_board
from quarl_bench.report.rows import build_row
from quarl_bench.spec import Verdict

if TYPE_CHECKING:
    from quarl_bench.judging.claim import JudgedCase

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
    """Judges the item's case on its board. Refuted is an xfail with the explanation: the ratio is what decides it."""

    def check(self, run: BoardRun) -> Verdict:
        """Judge the ratio that the item's claim is about: of times, of file sizes, or of peak resident memory."""
        judged: JudgedCase = self._request.getfixturevalue("case")
        verdict = judged.claim.require(Faster).decide_board(run.compared)
        row = build_row(judged, verdict, **show_board(judged, run.compared, verdict, trained=run.trained))
        return self._conclude(judged, row, verdict, row.line, excuse=row.known)


def tabulate(compared: BoardComparison) -> pd.DataFrame:
    """One line per artefact: machine, runtime, median and its standard error over blocks, p99, memory."""
    return pd.DataFrame([_list_columns(compared, timing) for timing in (compared.first, compared.second)])


def _list_columns(compared: BoardComparison, timing: Timing) -> dict[str, Any]:
    state = compared.after
    return {
        "machine": f"{state.processor} {state.architecture}",
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
