"""The `pace_regression` and `pace_verdict` fixtures: did our own step time move, and does Table 5 hold here?"""

import statistics
from typing import Any

import numpy as np
import pandas as pd

from quarl_bench.claims.catalog import JudgedCase, JudgedClaim
from quarl_bench.claims.pace import describe_pace, explain_pace, judge_pace, judge_trend, read_size
from quarl_bench.plugin.regression import StoredNumbers
from quarl_bench.plugin.times import SLACK
from quarl_bench.plugin.verdict import Check
from quarl_bench.report.paces import build_pace_row
from quarl_bench.rl.pace import LEAN, Paces, find_error
from quarl_bench.rl.recipes import FP32
from quarl_bench.spec import Verdict

IDENTITY = ("machine", "cores", "device", "torch", "policy", "divisor", "contender", "blocks")


class PaceRegression(StoredNumbers):
    """Compares the times of a step with those stored for the same machine and torch; void times are not stored."""

    def check(self, paces: Paces) -> None:  # type: ignore[override]
        """Fail when a time moved; note "no-baseline", "mismatch" (another machine or torch) or "void" instead."""
        __tracebackhide__ = True
        if paces.faults:
            self._say("void")
            return
        case = self.request.getfixturevalue("case").case
        self._compare(tabulate(paces, read_size(case.environment), case.scheme), IDENTITY)

    def _tolerances(self, obtained: pd.DataFrame, expected: pd.DataFrame) -> dict[str, Any]:  # noqa: ARG002
        loose: dict[str, Any] = {"rtol": 1e9, "atol": 1e9}  # there to be read
        error = 2 * expected["step_se_ms"].to_numpy(dtype=np.float64)
        return {
            "step_ms": {"rtol": SLACK, "atol": error},
            "step_se_ms": loose,
            "steps_per_s": {"rtol": SLACK, "atol": 2 * expected["steps_per_s_se"].to_numpy(dtype=np.float64)},
            "steps_per_s_se": loose,
        }


class PaceVerdict(Check):
    """Judges the item's case or claim. Refuted is an xfail with the explanation: a ratio differs between machines."""

    def check(self, paces: Paces) -> Verdict:
        """Judge the gain of one policy."""
        judged: JudgedCase = self._request.getfixturevalue("case")
        case, claim = judged.case, judged.claim
        verdict = judge_pace(paces, case.environment, case.scheme, claim.rule, claim.threshold)
        return self._explain(judged, paces, verdict, [case.environment], case.scheme)

    def check_sizes(self, paces: Paces) -> Verdict:
        """Judge how gains grow over the policies of a claim."""
        judged: JudgedClaim = self._request.getfixturevalue("claim")
        environments = [case.environment for case in judged.cases]
        verdict = judge_trend(paces, environments, judged.scheme, judged.claim.rule)
        return self._explain(judged, paces, verdict, environments, judged.scheme)

    def _explain(
        self,
        judged: JudgedCase | JudgedClaim,
        paces: Paces,
        verdict: Verdict,
        environments: list[str],
        precision: str,
    ) -> Verdict:
        notes = explain_pace(paces, environments, precision)
        row = build_pace_row(judged, paces, verdict, environments, precision, notes)
        return self._settle(judged, row, verdict, describe_pace(verdict), excuse="; ".join(notes))


def tabulate(paces: Paces, size: str, precision: str) -> pd.DataFrame:
    """One line per contender: machine, what was trained, medians of a step and of the end-to-end rate."""
    return pd.DataFrame([_list_columns(paces, size, name) for name in (FP32, LEAN, precision)])


def _list_columns(paces: Paces, size: str, contender: str) -> dict[str, Any]:
    key = f"{size}-{contender}"
    seconds, rates = paces.steps[key], paces.rates.get(key, [0.0])
    return {
        "machine": paces.machine,
        "cores": paces.cores,
        "device": paces.device,
        **paces.versions,
        "policy": size.upper(),
        "divisor": paces.divisor,
        "contender": contender,
        "blocks": len(seconds),
        "step_ms": 1e3 * statistics.median(seconds),
        "step_se_ms": 1e3 * find_error(seconds),
        "steps_per_s": statistics.median(rates),
        "steps_per_s_se": find_error(rates),
    }
