"""The `verdict` fixture: judge, record the row, and turn the verdict into pytest's outcomes, as its kin do too."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quarl_bench.judging.claim import JudgedCase, JudgedClaim
from quarl_bench.judging.modes import describe
from quarl_bench.judging.outcomes import ClaimRefuted
from quarl_bench.judging.rules.cells import Keeps
from quarl_bench.plugin.state import REGRESSION, get_settings
from quarl_bench.report.rows.builder import build_row, show_case, show_cells
from quarl_bench.spec import Measurement, Outcome, Verdict
from quarl_bench.views.rows import Row

NOT_REFUTED = "it is known not to hold, and is not refuted in profile {}: drop the reason, or give it a profile"


class VerdictFixture:
    """What every verdict fixture does with a verdict.

    A refutation with a `known` reason is an xfail that accepts ClaimRefuted only: a crash or a moved number still
    fails, and so does a known item that is not refuted. Times differ from session to session, so that a known one may
    be inconclusive. Else open and partial verdicts fail only under `--quarl-strict`.
    """

    def __init__(self, request: pytest.FixtureRequest, record: Callable[[Row], None], *, strict: bool) -> None:
        self._request, self._record, self._strict = request, record, strict
        self._profile = get_settings(request.config).profile

    def _conclude(
        self, judged: JudgedCase | JudgedClaim, row: Row, result: Verdict, line: str, *, foreign: str = ""
    ) -> Verdict:
        """Record the row and raise what pytest is to show.

        `foreign` is a processor of which no session is stored: a refutation there is reported, and fails when strict.
        """
        node, reason = self._request.node, judged.find_known(self._profile, row.processor)
        outside = bool(foreign) and result.outcome is Outcome.REFUTED and not reason
        caveats = [*row.caveats, *([f"no session on {foreign} is stored: reported, not a failure"] if outside else [])]
        self._record(replace(row, regression=node.stash.get(REGRESSION, "none"), known=reason, caveats=caveats))
        line = f"{judged.id}: {judged.claim.says} ({judged.claim.where}): {line}"
        if result.outcome.open or result.outcome is Outcome.PARTIAL or outside:
            if self._strict:
                pytest.fail(f"{line} (--quarl-strict)", pytrace=False)
            if reason and result.outcome.open and not judged.claim.judgement.timed:
                pytest.fail(f"{line}; {NOT_REFUTED.format(self._profile)}", pytrace=False)
            return result
        if reason:
            # Marked now, not at collection: an inconclusive time is neither an xfail nor an xpass.
            node.add_marker(pytest.mark.xfail(raises=ClaimRefuted, strict=True, reason=reason))
        if result.outcome is Outcome.REFUTED:
            raise ClaimRefuted(line)
        return result

    def _is_stored(self, name: str, machine: str) -> bool:
        """Whether the times of a case have a stored session on that machine, in this profile."""
        path: Path = self._request.node.path.with_suffix("") / f"{name}.{self._profile}.csv"  # as pytest-datadir has it
        if not path.is_file():
            return False
        with path.open(encoding="utf-8", newline="") as file:
            return any(line.get("machine") == machine for line in csv.DictReader(file))


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


def _show(panels: Sequence[Any]) -> dict[str, Any]:
    """What panels add to a row."""
    return {"panels": [panel.as_dict() for panel in panels]} if panels else {}
