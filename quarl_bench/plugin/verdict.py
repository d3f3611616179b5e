"""The `verdict` fixture: judge, record the row, and turn the verdict into pytest's outcomes, as its kin do too."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.modes import describe
from quarl_bench.judging.outcomes import ClaimRefuted
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.plugin.state import REGRESSION
from quarl_bench.report.rows import build_row, show_case, show_cells
from quarl_bench.spec import Measurement, Outcome, Verdict
from quarl_bench.views.rows import Row


class VerdictFixture:
    """What every verdict fixture does with a verdict.

    A claim with a `known` reason is a strict xfail that accepts ClaimRefuted only: a crash or a moved number still
    fails, and so does a verdict "supported". Inconclusive and partial verdicts fail only under `--quarl-strict`.
    """

    def __init__(self, request: pytest.FixtureRequest, record: Callable[[Row], None], *, strict: bool) -> None:
        self._request, self._record, self._strict = request, record, strict

    def _conclude(
        self, judged: JudgedCase | JudgedClaim, row: Row, result: Verdict, line: str, *, excuse: str = ""
    ) -> Verdict:
        """Record the row and raise what pytest is to show. With an `excuse` a refutation is an xfail of that reason."""
        node = self._request.node
        self._record(replace(row, regression=node.stash.get(REGRESSION, "none")))
        line = f"{judged.id}: {judged.claim.says} ({judged.claim.where}): {line}"
        if result.outcome in (Outcome.INCONCLUSIVE, Outcome.PARTIAL):
            if self._strict:
                pytest.fail(f"{line} (--quarl-strict)", pytrace=False)
            return result
        reason = judged.known or (excuse if result.outcome is Outcome.REFUTED else "")
        if reason:
            # Marked now, not at collection: an inconclusive verdict is neither an xfail nor an xpass.
            node.add_marker(pytest.mark.xfail(raises=ClaimRefuted, strict=True, reason=reason))
        if result.outcome is Outcome.REFUTED:
            raise ClaimRefuted(line)
        return result


class VerdictCheck(VerdictFixture):
    """Judges the item's case or claim by what policies return."""

    def check(
        self,
        measured: Measurement,
        reference: Measurement,
        policies: Any = None,
        *,
        panels: Sequence[Any] = (),
        caveats: Sequence[str] = (),
    ) -> Verdict:
        """Judge `measured` against the fp32 `reference` of the same cell; `panels` go to the page, `caveats` beside it.

        The row of a case that loses says which layers lose what, where the cell's fp32 `policies` are given.
        """
        judged: JudgedCase = self._request.getfixturevalue("case")
        found = judged.claim.require(Keeps).decide_case(judged, reference, measured)
        result = replace(found, caveats=(*found.caveats, *caveats))
        shown = show_case(judged, reference, measured) | _show(panels)
        if policies is not None and result.high is not None and result.high < result.threshold:
            shown["layers"] = self._request.getfixturevalue("quarl_cells").explain(policies, judged.case.scheme)
        return self._conclude(judged, build_row(judged, result, **shown), result, describe(result))

    def check_cells(self, cells: Any) -> Verdict:
        """Judge the item's sentence over `cells`, the fixture of that name or other evidence of the item."""
        judged: JudgedClaim = self._request.getfixturevalue("claim")
        judgement = judged.claim.judgement
        result = judgement.decide(judged, cells)
        row = build_row(judged, result, **show_cells(cells), **_show(judgement.show(judged, cells)))
        return self._conclude(judged, row, result, describe(result))

    def check_result(self, result: Verdict) -> Verdict:
        """Take a verdict that the bench reached, on what no fixture collects."""
        from quarl_bench.judging.evidence import Evidence

        judged: JudgedClaim = self._request.getfixturevalue("claim")
        return self._conclude(judged, build_row(judged, result, **show_cells(Evidence())), result, describe(result))


def _show(panels: Sequence[Any]) -> dict[str, Any]:
    """What panels add to a row."""
    return {"panels": [panel.as_dict() for panel in panels]} if panels else {}
