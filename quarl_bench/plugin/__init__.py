"""The pytest plugin: hooks. Options, settings, fixtures, regression and recording are its neighbours.

Loaded in every pytest run of its environment: what is not needed before a claim is asked for waits until then.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

from quarl_bench.errors import MissingBaseline, MissingBoard, MissingExtra, QuarlError
from quarl_bench.judging.outcomes import RECORD, STRICT, Undecided
from quarl_bench.plugin import board_fixtures, fixtures, mixed_precision_fixtures, projects
from quarl_bench.plugin.options import MARKERS, add_options, is_configured
from quarl_bench.plugin.state import BASIS, CASE, CATALOG, PREFIX, RECORDER, ROW, VERDICT, get_settings

if TYPE_CHECKING:
    from quarl_bench.plugin.recorder import Recorder
    from quarl_bench.plugin.settings import Settings
    from quarl_bench.views.rows import Row

FIXTURES = (fixtures, board_fixtures, mixed_precision_fixtures, projects)
GPU = "cuda"  # a case's board
UNDECIDED = {"inconclusive": "i", "undecidable": "u", "partial": "p"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and ini keys of `--quarl-...`; pytest calls this before it reads the command line."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Markers; settings and recorder at once where something is said to this plugin, else when they are needed."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
    _register_fixtures(config)
    config.addinivalue_line("filterwarnings", "default::quarl_bench.system.registry.EntryPointWarning")
    configured, controls = is_configured(config), not hasattr(config, "workerinput")
    if configured and get_settings(config).claims:
        _catalog(config)  # an ill-formed file ends the run before collection
    if controls and configured:
        _start_recorder(config)
    elif controls:
        config.pluginmanager.register(RecorderOnDemand(config))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize `case` or `claim` of tests marked `claim(id, ...)` with the catalog's items."""
    marker = metafunc.definition.get_closest_marker("claim")
    names = {"case", "claim"} & set(metafunc.fixturenames)
    if marker is None:
        return
    if not names:
        if marker in metafunc.definition.own_markers:  # a module's may be about others of its tests
            raise pytest.UsageError(
                f"{metafunc.definition.nodeid}: marked claim{marker.args}, but it takes neither 'case' nor 'claim'"
            )
        return
    from quarl_bench.judging.claim import expand

    catalog = {claim.id: claim for claim in _catalog(metafunc.config)}
    if not marker.args or not set(marker.args) <= catalog.keys():
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: claim{marker.args} is not one of {', '.join(sorted(catalog))}"
        )
    items: list[Any] = []
    claims = [catalog[name] for name in marker.args]
    name = _name_argument(claims[0])
    for claim in claims:
        needed = _name_argument(claim)
        if needed not in names or needed != name:
            raise pytest.UsageError(f"{metafunc.definition.nodeid}: claim {claim.id!r} needs the argument {needed!r}")
        items += expand(_place(claim, get_settings(metafunc.config)))
    metafunc.parametrize(name, [pytest.param(item, id=item.id, marks=_mark(item)) for item in items])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Name the case in every report of the item, so that its skips can be counted."""
    params = getattr(getattr(item, "callspec", None), "params", {})
    for name in ("case", "claim"):
        if hasattr(params.get(name), "claim"):
            item.user_properties.append((CASE, params[name].id))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the part of `--quarl-shard`, after `-k` and `-m` have chosen."""
    if config.getoption("quarl_shard") is None or (settings := get_settings(config)).shard is None:
        return
    from quarl_bench.plugin.shard import hash_selection, pick_shard

    durations: dict[str, float] = {}
    if settings.compare is not None:
        from quarl_bench.report.documents import read_results

        durations = read_results(settings.compare).data.get("durations", {})
    mine = pick_shard(items, settings.shard, durations)
    basis = hash_selection(items, durations)
    for item in items:
        item.user_properties.append((BASIS, basis))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
    items[:] = [item for item in items if item.nodeid in mine]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Rows of `assert_quantizable` in a fixture."""
    return (yield from _record_rows(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Rows of `assert_quantizable` in a test."""
    return (yield from _record_rows(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Rows of `assert_quantizable` behind a fixture's yield."""
    return (yield from _record_rows(item))


def _register_fixtures(config: pytest.Config) -> None:
    """Plugins of their own; for each name in `pytest_plugins` pytest would read every distribution's entry points."""
    for module in FIXTURES:
        if not config.pluginmanager.has_plugin(module.__name__):  # `-p` may have named it
            config.pluginmanager.register(module, module.__name__)


def _start_recorder(config: pytest.Config) -> "Recorder":
    from quarl_bench.plugin.recorder import Recorder

    recorder = Recorder(config, get_settings(config))
    config.pluginmanager.register(recorder, RECORDER)
    return recorder


def _record_rows(item: pytest.Item) -> Generator[None, None, None]:
    """However a test came by them, they are rows of this item."""

    def record(row: "Row") -> None:
        from quarl_bench.plugin.recorder import record_row

        record_row(item, row)

    def is_strict(strict: bool | None) -> bool:
        settings = get_settings(item.config)
        return settings.strict or (not settings.lenient if strict is None else strict)

    tokens = RECORD.set(record), STRICT.set(is_strict)
    try:
        return (yield)
    finally:
        RECORD.reset(tokens[0])
        STRICT.reset(tokens[1])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a user can mend ends in one line; what is merely absent is a skip unless it was required."""
    error = call.excinfo.value if call.excinfo else None
    if call.excinfo and isinstance(error, Undecided | QuarlError):
        call.excinfo.traceback = call.excinfo.traceback[:0]  # nobody sees it, and its sources take long to find
    report = yield
    if isinstance(error, Undecided):
        report.longrepr = f"{type(error).__name__}: {error}"
        return report
    if report.when == "call" and report.passed and not hasattr(report, "wasxfail"):
        _tell_undecided(item, report)
    if not isinstance(error, QuarlError):
        return report
    line = f"{type(error).__name__}: {error}"
    required = get_settings(item.config).require
    names = {MissingBaseline: "baselines", MissingExtra: getattr(error, "extra", "")}
    absent = (names | {MissingBoard: getattr(error, "board", "")}).get(type(error))
    if absent is not None and absent not in required:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {error}")
    else:
        report.longrepr = line
    return report


def _tell_undecided(item: pytest.Item, report: pytest.TestReport) -> None:
    """A test that ended with an undecided verdict passed nothing: other reports, as junit XML, show it as skipped."""
    rows = [value for name, value in item.user_properties if name == ROW and isinstance(value, dict)]
    undecided = next((row for row in rows if row.get("verdict") in UNDECIDED), None)
    if undecided is not None:
        report.outcome = "skipped"
        said = f"Skipped: {undecided['id']}: {undecided['line']}"
        report.longrepr = (str(item.path), item.location[1] or 0, said)


class RecorderOnDemand:
    """Begins to record with the first report that has something for this plugin: in most runs of pytest none has."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Hand the report to a new recorder, which from then on gets them by itself."""
        if any(name.startswith(PREFIX) for name, _ in report.user_properties):
            self._config.pluginmanager.unregister(self)
            _start_recorder(self._config).pytest_runtest_logreport(report)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Inconclusive and partial verdicts are outcomes of their own."""
    if report.when != "call" or report.failed:
        return None
    verdicts = [value for name, value in report.user_properties if name == VERDICT]
    word = next((word for word in UNDECIDED if word in verdicts), None)
    return None if word is None else (word, UNDECIDED[word], (word.upper(), {"yellow": True}))


def _place(claim: Any, settings: "Settings") -> Any:
    """A claim about boards, on this machine and on the boards of the board file; without one, on those it names."""
    import dataclasses

    from quarl_bench.boards.board import read_boards
    from quarl_bench.plugin.settings import list_extras
    from quarl_bench.spec import LOCAL, Source

    if not claim.judgement.boards:
        return claim
    boards = claim.boards
    if settings.boards is not None:
        listed = read_boards(settings.boards).values()
        boards = (LOCAL, *(b.name for b in listed if b.name != LOCAL and b.source is not Source.EMULATED))
    required = (name for name in settings.require if name not in (*list_extras(), *boards))
    return dataclasses.replace(claim, boards=(*boards, *required))


def _name_argument(claim: Any) -> str:
    """What a test of this claim takes: `case` where every cell is an item, else `claim`."""
    return "case" if claim.judgement.each else "claim"


def _mark(item: Any) -> tuple[pytest.MarkDecorator, ...]:
    from quarl_bench.spec import LOCAL

    board = getattr(getattr(item, "case", item), "board", "")
    if board == GPU:
        return (pytest.mark.gpu,)
    return (pytest.mark.hardware,) if board not in ("", LOCAL) else ()


def _catalog(config: pytest.Config) -> tuple[Any, ...]:
    if CATALOG not in config.stash:
        from quarl_bench.papers.registry import read_catalog

        try:
            settings = get_settings(config)
            config.stash[CATALOG] = read_catalog(settings.claims, elsewhere=settings.elsewhere)
        except QuarlError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[CATALOG]
