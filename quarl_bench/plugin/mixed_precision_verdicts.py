"""The `step_time_regression` and `step_time_verdict` fixtures: did our step time move, and does Table 5 hold here?"""

import statistics
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from quarl_bench.boards.session_file import read_sessions, store_session
from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.rules.training import OnTimes
from quarl_bench.judging.times.step_times import explain_step_time, list_ratios, read_size
from quarl_bench.plugin.board_verdicts import TIME_TOLERANCE, find_sessions
from quarl_bench.plugin.regression import StoredNumbers
from quarl_bench.plugin.verdict import VerdictFixture
from quarl_bench.report.rows.builder import build_row
from quarl_bench.report.rows.step_times import show_step_times
from quarl_bench.spec import Verdict
from quarl_bench.training.recipes import FP32
from quarl_bench.training.sb3.step_times import LEAN, StepTimes, find_error

IDENTITY = ("machine", "cores", "device", "torch", "policy", "divisor", "contender", "blocks")


class StepTimeRegression(StoredNumbers):
    """Compares the times of a step with those stored for the same machine and torch; void times are not stored."""

    def check(self, times: StepTimes) -> None:  # type: ignore[override]
        """Fail when a time moved; note "no-baseline", "mismatch" (another machine or torch) or "void" instead."""
        __tracebackhide__ = True
        if times.faults:
            self._note_state("void")
            return
        if self._regenerates:
            path = find_sessions(self.request.node.path, times.device, self._profile)
            store_session(path, identify(times), list_ratios(times), datetime.now(UTC))
        case = self.request.getfixturevalue("case").case
        self._compare(tabulate(times, read_size(case.environment), case.scheme), IDENTITY)

    def _tolerances(self, obtained: pd.DataFrame, expected: pd.DataFrame) -> dict[str, Any]:  # noqa: ARG002
        loose: dict[str, Any] = {"rtol": 1e9, "atol": 1e9}  # there to be read
        error = 2 * expected["step_se_ms"].to_numpy(dtype=np.float64)
        return {
            "step_ms": {"rtol": TIME_TOLERANCE, "atol": error},
            "step_se_ms": loose,
            "steps_per_s": {"rtol": TIME_TOLERANCE, "atol": 2 * expected["steps_per_s_se"].to_numpy(dtype=np.float64)},
            "steps_per_s_se": loose,
        }


class StepTimeVerdict(VerdictFixture):
    """Judges the item's case or claim; the row says what explains the ratio."""

    def check(self, times: StepTimes) -> Verdict:
        """Judge how much less time or memory one policy's training takes, and record the verdict for the case."""
        judged: JudgedCase = self._request.getfixturevalue("case")
        return self._explain(judged, times, [judged.case.environment], judged.case.scheme)

    def check_sizes(self, times: StepTimes) -> Verdict:
        """Judge how gains grow over the policies of a claim."""
        judged: JudgedClaim = self._request.getfixturevalue("claim")
        environments = [case.environment for case in judged.cases]
        return self._explain(judged, times, environments, judged.scheme)

    def _explain(
        self,
        judged: JudgedCase | JudgedClaim,
        times: StepTimes,
        environments: list[str],
        precision: str,
    ) -> Verdict:
        path = find_sessions(self._request.node.path, times.device, self._profile)
        sessions = read_sessions(path, identify(times), list_ratios(times), datetime.now(UTC))
        verdict = judged.claim.require(OnTimes).decide_times(environments, precision, times, sessions)
        notes = explain_step_time(times, environments, precision)
        shown = show_step_times(judged, times, verdict, environments, precision, notes)
        row = build_row(judged, verdict, **shown)
        cases = [judged.case] if isinstance(judged, JudgedCase) else judged.cases
        stored = all(self._is_stored(case.id, times.machine) for case in cases)
        return self._conclude(judged, row, verdict, row.line, foreign="" if stored else times.machine)


def identify(times: StepTimes) -> dict[str, object]:
    """What sessions have to have in common."""
    return {"machine": times.machine, "cores": times.cores, **times.versions, "divisor": times.divisor}


def tabulate(times: StepTimes, size: str, precision: str) -> pd.DataFrame:
    """One line per contender: machine, what was trained, medians of a step and of the end-to-end rate."""
    return pd.DataFrame([_list_columns(times, size, name) for name in (FP32, LEAN, precision)])


def _list_columns(times: StepTimes, size: str, contender: str) -> dict[str, Any]:
    key = f"{size}-{contender}"
    seconds, rates = times.steps[key], times.rates.get(key, [0.0])
    return {
        "machine": times.machine,
        "cores": times.cores,
        "device": times.device,
        **times.versions,
        "policy": size.upper(),
        "divisor": times.divisor,
        "contender": contender,
        "blocks": len(seconds),
        "step_ms": 1e3 * statistics.median(seconds),
        "step_se_ms": 1e3 * find_error(seconds),
        "steps_per_s": statistics.median(rates),
        "steps_per_s_se": find_error(rates),
    }
