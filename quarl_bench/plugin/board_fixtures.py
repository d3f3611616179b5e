"""Fixtures of benches on boards: artefacts of a case, timed there once per process, and the verdict on them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from quarl_bench.plugin.progress import show_blocks
from quarl_bench.system.extras import needing

if TYPE_CHECKING:  # collection imports neither NumPy nor torch
    from quarl_bench.boards.board import Board
    from quarl_bench.boards.memory import LimitedComparison
    from quarl_bench.boards.timing import TimingPlan
    from quarl_bench.experiments.cells import Cells
    from quarl_bench.judging.claim import JudgedCase, JudgedClaim
    from quarl_bench.plugin.board_verdicts import BoardRun, BoardVerdict, TimesRegression
    from quarl_bench.plugin.settings import Settings
    from quarl_bench.spec import Case
    from quarl_bench.views.rows import Row

QUIET = 0.5  # cores that may be in use beside a process that swaps: the kernel's own work counts as another's
WAIT = 1800.0  # seconds that workers of one run wait for each other's board


@pytest.fixture(scope="session")
def quarl_board_runs(
    quarl_cells: "Cells", quarl_settings: "Settings", quarl_run: str, pytestconfig: pytest.Config
) -> "Callable[[Board, Case], BoardRun]":
    """Compare the policy of a case, in fp32 and under its scheme, on a board; each policy once."""
    runs: dict[Case, BoardRun] = {}

    def run(board: "Board", case: "Case") -> "BoardRun":
        from quarl_bench.boards.session import ask_state, open_session
        from quarl_bench.papers.registry import list_providers
        from quarl_bench.plugin.board_verdicts import BoardRun

        if case not in runs:
            ask_state(board)  # a silent one says so before the long export, which no lease would outlast
            pair = list_providers("navigation")[0].open("navigation").export_flight(quarl_cells, case)
            plan = find_plan(quarl_settings.profile)
            with (
                open_session(board, quarl_run, WAIT) as session,
                show_blocks(pytestconfig, 2 * plan.blocks, case.id) as progress,
            ):
                runs[case] = BoardRun(session.compare((pair.fp32, pair.int8), plan, progress=progress), pair.trained)
        return runs[case]

    return run


@pytest.fixture
def board_run(case: "JudgedCase", quarl_settings: "Settings", request: pytest.FixtureRequest) -> "BoardRun":
    """The case's policy on the case's board; skips without a board file, fails when a listed board is silent."""
    from quarl_bench.boards.board import find_board

    board = find_board(case.case.board, quarl_settings.boards)  # before anything heavy is imported
    run: BoardRun = request.getfixturevalue("quarl_board_runs")(board, case.case)
    return run


@pytest.fixture
def limited_run(case: "JudgedCase", quarl_cells: "Cells", quarl_run: str) -> "LimitedComparison":
    """The case's policy on this machine with too little memory for fp32; skips where memory cannot be limited."""
    from dataclasses import replace

    from quarl_bench.boards.board import THIS_MACHINE
    from quarl_bench.boards.memory import compare_limited, find_obstacle
    from quarl_bench.boards.session import open_session
    from quarl_bench.papers.registry import list_providers
    from quarl_bench.spec import LOCAL

    if case.case.board != LOCAL:
        pytest.skip("memory is limited on this machine only, as an emulation")
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    pair = list_providers("navigation")[0].open("navigation").export_flight(quarl_cells, case.case)
    with open_session(replace(THIS_MACHINE, quiet=QUIET), quarl_run, WAIT) as session:
        return compare_limited(session, (pair.fp32, pair.int8), find_limited_plan())


@pytest.fixture
def board_runs(
    claim: "JudgedClaim", quarl_settings: "Settings", request: pytest.FixtureRequest
) -> "tuple[BoardRun, ...]":
    """The policies of a claim on its board, in the order of its cells; skips and fails as `board_run` does."""
    from quarl_bench.boards.board import find_board

    board = find_board(claim.board, quarl_settings.boards)
    run: Callable[[Board, Case], BoardRun] = request.getfixturevalue("quarl_board_runs")
    return tuple(run(board, case) for case in claim.cases)


@pytest.fixture
def times_regression(request: pytest.FixtureRequest, quarl_settings: "Settings") -> "TimesRegression":
    """Did our own time move? Compares with the file of the same machine; `--force-regen` rewrites it."""
    with needing("claims", "times_regression"):
        from quarl_bench.plugin.board_verdicts import TimesRegression

    return TimesRegression(request, quarl_settings.profile)


@pytest.fixture
def board_verdict(
    request: pytest.FixtureRequest, quarl_record: Callable[["Row"], None], quarl_settings: "Settings"
) -> "BoardVerdict":
    """Does the paper's sentence hold on this board? Refuted fails, unless it is known on this processor."""
    from quarl_bench.plugin.board_verdicts import BoardVerdict

    return BoardVerdict(request, quarl_record, strict=quarl_settings.strict)


def find_limited_plan() -> "TimingPlan":
    """A call that swaps takes up to a tenth of a second."""
    from quarl_bench.boards.timing import TimingPlan

    return TimingPlan(calls=20, seconds=0.0, warmup=0.0)


def find_plan(profile: str) -> "TimingPlan":
    """A profile's plan: 1,000 calls and 10 s per artefact, or a glance in `quick`."""
    from quarl_bench.boards.timing import TimingPlan

    return TimingPlan(blocks=2, calls=100, seconds=0.25, warmup=0.1) if profile == "quick" else TimingPlan()
