"""Rows travel as report properties from wherever a test ran to the controller, and from there to terminal and JSON."""

import json
from typing import Any

import pytest

from quarl_bench.errors import QuarlError
from quarl_bench.plugin.options import Settings

RECORDER = "quarl_recorder"
ROW = "quarl_row"  # property: the row of a judged item
CASE = "quarl_case"  # property: the id of an item of the catalog, judged or not
NOTE = "quarl_note"  # property: something the store trained or repaired


class Recorder:
    """Collects rows, skips and notes of a whole run, whatever process the tests ran in."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self.rows: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []
        self.notes: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the properties of a finished phase; rows are complete after the call, notes after teardown."""
        properties: dict[str, Any] = dict(report.user_properties)
        if report.skipped and CASE in properties and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append({"nodeid": report.nodeid, "reason": str(reason).removeprefix("Skipped: ")})
        if report.when == "call" and ROW in properties:
            self.rows.append({"nodeid": report.nodeid, "outcome": _name_outcome(report), **properties[ROW]})
        if report.when == "teardown":  # the last phase, after every fixture had its say
            self.notes += [str(value) for name, value in report.user_properties if name == NOTE]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        """Write the results file and the page."""
        settings = self._settings
        if settings.json is None and settings.html is None:
            return
        from quarl_bench.report.results import build_results, write_results

        lists: dict[str, list[Any]] = {"skipped": self.skipped, "notes": self.notes}
        try:
            results = build_results(self.rows, settings.as_dict(), self._config.rootpath, **lists)
            if settings.json is not None:
                write_results(settings.json, results)
            if settings.html is not None:
                from quarl_bench.report.html import Document, write_report

                write_report(settings.html, [Document("this run", results)])
        except QuarlError as error:
            raise pytest.UsageError(str(error)) from error

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The section "quarl claims"."""
        if not (self.rows or self.skipped or self.notes):
            return
        from quarl_bench.report.terminal import list_lines, list_skips

        terminalreporter.section("quarl claims")
        verbose = self._config.get_verbosity() > 0
        for line in list_lines(sorted(self.rows, key=lambda row: str(row["nodeid"])), verbose=verbose):
            terminalreporter.line(line)
        for line in list_skips([entry["reason"] for entry in self.skipped], verbose=verbose):
            terminalreporter.line(line)
        for note in sorted(set(self.notes)):
            terminalreporter.line(f"note: {note}")


def to_builtin(value: Any) -> Any:
    """`value` with NumPy scalars and arrays as built-in types: one np.float64 would end an xdist session."""
    return json.loads(json.dumps(value, default=_convert))


def _convert(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be recorded; record numbers, strings, lists and dictionaries")


def _name_outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    return report.outcome
