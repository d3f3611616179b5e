"""Rows travel as report properties from wherever a test ran to the controller, and from there to terminal and JSON."""

import json
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest

from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.plugin.progress import is_watched
from quarl_bench.plugin.settings import Settings
from quarl_bench.plugin.state import BASIS, CASE, LINE, NOTE, ROW, VERDICT
from quarl_bench.system.extras import needing
from quarl_bench.views.rows import Row

if TYPE_CHECKING:
    from quarl_bench.report.compare import ResultsComparison

FINISHED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


class Recorder:
    """Collects rows, skips and notes of a whole run, whatever process the tests ran in."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        self._config, self._settings = config, settings
        self.rows: list[Row] = []
        self.skipped: list[dict[str, str]] = []
        self.notes: list[str] = []
        self.durations: dict[str, float] = {}
        self.compared: ResultsComparison | None = None
        self.conditions: list[str] = []  # of the last run, where they were others
        self._recorded: dict[str, int] = {}  # rows of the tests that run now
        self._passed: set[str] = set()  # of these, items of the catalog
        self._unjudged = 0  # items of the catalog that passed without a verdict
        self._stopped = False  # by Ctrl-C or `pytest.exit`, which may ask for any exit code
        self._basis = ""  # what the run was cut by
        self._errors: list[str] = []  # why the results were not written, or are not to be trusted

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the properties of a finished phase: those of an earlier one, and what this one added."""
        if hasattr(report, "context"):  # a subtest's: the report of its test says the same again
            report.user_properties[:] = _shorten(report.user_properties)
            return
        properties: dict[str, Any] = dict(report.user_properties)
        self._basis = properties.get(BASIS, self._basis)
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        if report.skipped and CASE in properties and not hasattr(report, "wasxfail") and ROW not in properties:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped.append({"nodeid": report.nodeid, "reason": str(reason).removeprefix("Skipped: ")})
        if report.when == "call" and report.passed and CASE in properties:
            self._passed.add(report.nodeid)
        if report.when != "setup" or not report.passed:  # a test's outcome is that of its call
            head = {"nodeid": report.nodeid, "outcome": _name_outcome(report)}
            found: list[Any] = [value for name, value in report.user_properties if name == ROW]
            self.rows += [Row.from_dict(value | head) for value in found[self._recorded.get(report.nodeid, 0) :]]
            self._recorded[report.nodeid] = len(found)
        if report.when == "teardown":  # the last phase, after every fixture had its say
            self.notes += [str(value) for name, value in report.user_properties if name == NOTE]
            recorded = self._recorded.pop(report.nodeid)
            self._unjudged += report.nodeid in self._passed and not recorded
            self._passed.discard(report.nodeid)
        report.user_properties[:] = _shorten(report.user_properties)

    def pytest_keyboard_interrupt(self) -> None:
        """Stopped by Ctrl-C, or by `pytest.exit`."""
        self._stopped = True

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

            last = read_results(settings.compare)
            now = {"settings": settings.as_dict(), "machine": describe_machine()}
            self.conditions = list(list_conditions(last.data, now))
            found = compare_rows(last.rows, self.rows)
            # What a part of the run lacks, another part has.
            self.compared = found if settings.shard is None else replace(found, vanished=())
            if self.compared.changed and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        cut = self._note_unfinished(session)
        self._judge_ids(session)
        if settings.json is None and settings.html is None:
            return
        from quarl_bench.report.results import build_results, write_results

        lists: dict[str, list[Any]] = {"skipped": self.skipped, "notes": self.notes}
        if self.compared is not None:
            lists["changes"] = self.compared.as_dicts()
        try:
            results = build_results(self.rows, settings.as_dict(), self._config.rootpath, self.durations, **lists)
            results |= cut
            if settings.shard is not None:
                results["shard"], results["basis"] = "{}/{}".format(*settings.shard), self._basis
            if settings.json is not None:
                write_results(settings.json, results)
            if settings.html is not None:
                from quarl_bench.report.documents import Document

                with needing("report", "--quarl-html"):
                    from quarl_bench.report.page.html import write_report

                write_report(settings.html, [Document("this run", results)], shown=is_watched(self._config))
        except QuarlError as error:  # raised, it would take the summary along, all that is left of a night
            self._errors.append(f"results were not written: {error}")
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _judge_ids(self, session: pytest.Session) -> None:
        """A row that is one of two policies' names nothing, in this run's results and beside another run's."""
        from quarl_bench.report.clash import find_clash

        if clash := find_clash(self.rows):
            self._errors.append(clash)
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def _note_unfinished(self, session: pytest.Session) -> dict[str, bool]:
        """What results say of a run that ended early, and a note for the reader."""
        if session.exitstatus in FINISHED and not (session.shouldfail or session.shouldstop or self._stopped):
            return {}
        self.notes.append("the run was interrupted: what is not listed was not run")
        return {"interrupted": True}

    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """The sections "quarl verdicts" and, beside the last run, "quarl changes"."""
        if self.compared is not None:
            from quarl_bench.report.compare import list_changes

            terminalreporter.section("quarl changes")
            changes = list_changes(self.compared, verbose=self._config.get_verbosity() > 0)
            for line in (*changes, *self.conditions):
                terminalreporter.line(line)
        if not (self.rows or self.skipped or self.notes or self._unjudged or self._errors):
            return
        from quarl_bench.report.terminal import list_hints, list_lines, list_skips
        from quarl_bench.report.undecided import list_undecided

        rows = sorted(self.rows, key=lambda row: row.nodeid)
        if undecided := [*list_undecided(rows)]:
            terminalreporter.section("quarl undecided")
            for line in undecided:
                terminalreporter.line(line)
        terminalreporter.section("quarl verdicts")
        verbose = self._config.get_verbosity() > 0
        for line in list_lines(rows, verbose=verbose):
            terminalreporter.line(line)
        for line in list_skips([entry["reason"] for entry in self.skipped], verbose=verbose):
            terminalreporter.line(line)
        for note in (*sorted(set(self.notes)), *list_hints(self.rows, self._unjudged)):
            terminalreporter.line(f"note: {note}")
        for error in self._errors:
            terminalreporter.line(f"ERROR: {error}", red=True)
        self._write_findings(terminalreporter)

    def _write_findings(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """The papers' main statements, behind a run that is long enough to answer them."""
        if self._settings.profile == "quick":
            return
        from quarl_bench.report.findings import list_findings

        if lines := [*list_findings(self.rows)]:
            terminalreporter.section("quarl findings")
            for line in lines:
                terminalreporter.line(line)


def record_row(node: pytest.Item, row: Row | dict[str, Any]) -> None:
    """Make `row` one of this item; NumPy values become built-in types, one of which would end an xdist session.

    SpecError for a dictionary that is no row.
    """
    value = row.as_dict() if isinstance(row, Row) else row
    value = json.loads(json.dumps(value, default=_convert))
    if strange := value.keys() - {each.name for each in fields(Row)}:
        raise SpecError(f"a row has no {', '.join(sorted(strange))}; its fields are those of {Row.__module__}.Row")
    Row.from_dict({"nodeid": node.nodeid} | value)
    # What `record_property` does, which warns when junit XML is written in pytest's default format.
    node.user_properties.append((ROW, value))


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
