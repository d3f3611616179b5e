"""Rows travel as report properties from wherever a test ran to the controller, and from there to terminal and JSON."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from quarl_bench.errors import QuarlError
from quarl_bench.plugin.settings import Settings
from quarl_bench.plugin.state import BASIS, CASE, LINE, NOTE, ROW, VERDICT
from quarl_bench.system.extras import needing

if TYPE_CHECKING:
    from quarl_bench.report.compare import ResultsComparison

FINISHED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Recorder:
    """Collects rows, skips and notes of a whole run, whatever process the tests ran in."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self.rows: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []
        self.notes: list[str] = []
        self.durations: dict[str, float] = {}
        self.compared: ResultsComparison | None = None
        self.conditions: list[str] = []  # of the last run, where they were others
        self._unjudged = 0  # items of the catalog that passed without a verdict
        self._basis = ""  # what the run was cut by
        self._lost = ""  # why the results were not written

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the properties of a finished phase; rows are complete after the call, or a setup that ended it."""
        if hasattr(report, "context"):  # a subtest's: the report of its test says the same again
            report.user_properties[:] = _shorten(report.user_properties)
            return
        properties: dict[str, Any] = dict(report.user_properties)
        self._basis = properties.get(BASIS, self._basis)
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        if report.skipped and CASE in properties and not hasattr(report, "wasxfail") and ROW not in properties:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append({"nodeid": report.nodeid, "reason": str(reason).removeprefix("Skipped: ")})
        if report.when == "call" or (report.when == "setup" and not report.passed):
            head = {"nodeid": report.nodeid, "outcome": _name_outcome(report)}
            self.rows += [head | value for name, value in report.user_properties if name == ROW]  # type: ignore[operator]
        self._unjudged += report.when == "call" and report.passed and CASE in properties and ROW not in properties
        if report.when == "teardown":  # the last phase, after every fixture had its say
            self.notes += [str(value) for name, value in report.user_properties if name == NOTE]
        report.user_properties[:] = _shorten(report.user_properties)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Compare with the last run; write the results file and the page."""
        settings = self._settings
        misspelt = session.exitstatus == pytest.ExitCode.USAGE_ERROR and not self.durations
        if misspelt or self._config.option.collectonly:
            return  # nothing was run: earlier results stay
        if settings.compare is not None:
            from quarl_bench.report.compare import compare_rows, list_conditions
            from quarl_bench.report.documents import read_results
            from quarl_bench.system.machine import describe_machine

            last = read_results(settings.compare).data
            now = {"settings": settings.as_dict(), "machine": describe_machine()}
            self.conditions = list(list_conditions(last, now))
            found = compare_rows(last["rows"], self.rows)
            # What a part of the run lacks, another part has.
            self.compared = found if settings.shard is None else replace(found, vanished=())
            if self.compared.changed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        cut = self._note_unfinished(session)
        if settings.json is None and settings.html is None:
            return
        from quarl_bench.report.results import build_results, write_results

        lists: dict[str, list[Any]] = {"skipped": self.skipped, "notes": self.notes}
        if self.compared is not None:
            lists["changes"] = self.compared.as_dicts()
        try:
            results = build_results(self.rows, settings.as_dict(), self._config.rootpath, **lists)
            results["durations"] = {nodeid: round(seconds, 3) for nodeid, seconds in sorted(self.durations.items())}
            results |= cut
            if settings.shard is not None:
                results["shard"], results["basis"] = "{}/{}".format(*settings.shard), self._basis
            if settings.json is not None:
                write_results(settings.json, results)
            if settings.html is not None:
                from quarl_bench.report.documents import Document

                with needing("report", "--quarl-html"):
                    from quarl_bench.report.page.html import write_report

                write_report(settings.html, [Document("this run", results)])
        except QuarlError as error:  # raised, it would take the summary along, all that is left of a night
            self._lost = str(error)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _note_unfinished(self, session: pytest.Session) -> dict[str, bool]:
        """What results say of a run that ended early, and a note for the reader."""
        if session.exitstatus in FINISHED and not (session.shouldfail or session.shouldstop):
            return {}
        self.notes.append("the run was interrupted: what is not listed was not run")
        return {"interrupted": True}

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """The sections "quarl claims" and, beside the last run, "quarl changes"."""
        if self.compared is not None:
            from quarl_bench.report.compare import list_changes

            terminalreporter.section("quarl changes")
            changes = list_changes(self.compared, verbose=self._config.get_verbosity() > 0)
            for line in (*changes, *self.conditions):
                terminalreporter.line(line)
        if not (self.rows or self.skipped or self.notes or self._unjudged or self._lost):
            return
        from quarl_bench.report.terminal import list_hints, list_lines, list_skips
        from quarl_bench.report.undecided import list_undecided

        rows = sorted(self.rows, key=lambda row: str(row["nodeid"]))
        if undecided := [*list_undecided(rows)]:
            terminalreporter.section("quarl undecided")
            for line in undecided:
                terminalreporter.line(line)
        terminalreporter.section("quarl claims")
        verbose = self._config.get_verbosity() > 0
        for line in list_lines(rows, verbose=verbose):
            terminalreporter.line(line)
        for line in list_skips([entry["reason"] for entry in self.skipped], verbose=verbose):
            terminalreporter.line(line)
        for note in (*sorted(set(self.notes)), *list_hints(self.rows, self._unjudged)):
            terminalreporter.line(f"note: {note}")
        if self._lost:
            terminalreporter.line(f"ERROR: results were not written: {self._lost}", red=True)


def to_builtin(value: Any) -> Any:
    """`value` with NumPy scalars and arrays as built-in types: one np.float64 would end an xdist session."""
    return json.loads(json.dumps(value, default=_convert))


def _convert(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be recorded; record numbers, strings, lists and dictionaries")


def _shorten(properties: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The same properties with rows told by verdict and line: junit XML and others print every property."""
    shortened: list[tuple[str, Any]] = []
    for name, value in properties:
        if name == ROW:
            shortened += [(VERDICT, value["verdict"]), (LINE, f"{value['id']}: {value['line']}")]
        elif name != BASIS:
            shortened.append((name, value))
    return shortened


def _name_outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "xfailed" if report.skipped else "xpassed"
    undecided = report.skipped and any(name == ROW for name, _ in report.user_properties)
    return "passed" if undecided else report.outcome
