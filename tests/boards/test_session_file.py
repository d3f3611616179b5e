"""Stored sessions of a timing on a board: the file, and the verdict that covers them."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from quarl_bench.boards import session_file
from quarl_bench.boards.session_file import check_file, read_sessions, store_session
from quarl_bench.boards.speedup import judge_growth, judge_speed
from quarl_bench.boards.timing import IDENTITY, RATIOS
from quarl_bench.cli import main
from quarl_bench.errors import StoreError
from quarl_bench.spec import Outcome
from tests.support.boards import compare_boards

NOW = datetime(2026, 11, 25, 20, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
COMPARED = compare_boards(1150.0, 1000.0)


def store(path, *times, compared=COMPARED):
    """Whether each session was added; they find what `compared` found."""
    return [store_session(path, compared.identify(), compared.list_ratios(), when) for when in times]


def recall(path, compared=COMPARED):
    return read_sessions(path, compared.identify(), RATIOS, NOW)


def test_sessions_come_back_and_those_of_others_do_not(tmp_path):
    path = tmp_path / "speed.sessions.csv"
    assert recall(path).earlier == ()
    assert store(path, NOW - 4 * HOUR, NOW - 2 * HOUR, NOW - HOUR / 2) == [True, True, True]
    other = compare_boards(1150.0, 1000.0, processor="another")
    assert store(path, NOW - 3 * HOUR, compared=other) == [True]
    found = recall(path)
    assert [session.when for session in found.earlier] == [
        NOW - 4 * HOUR,
        NOW - 2 * HOUR,
    ]  # half an hour is this one
    assert found.earlier[0].ratios == pytest.approx(COMPARED.list_ratios(), rel=1e-5)
    assert len(recall(path, other).earlier) == 1


def test_a_session_within_the_hour_is_not_added(tmp_path):
    path = tmp_path / "speed.sessions.csv"
    assert store(path, NOW, NOW + HOUR / 2, NOW - HOUR / 2, NOW + HOUR) == [True, False, False, True]
    assert len(path.read_text().splitlines()) == 3


def test_no_session_of_several_that_are_added_at_once_is_lost(tmp_path, monkeypatch):
    path, write = tmp_path / "speed.sessions.csv", session_file.write_file
    monkeypatch.setattr(session_file, "write_file", lambda *arguments: (time.sleep(0.05), write(*arguments)))
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda hours: store(path, NOW - hours * HOUR) == [True], range(1, 9)))
    assert len(recall(path).earlier) == 8


def test_a_verdict_covers_stored_sessions(tmp_path):
    path = tmp_path / "speed.sessions.csv"
    for hours, fp32 in ((50, 1150.0), (26, 1030.0), (24, 980.0), (3, 1100.0)):
        store(path, NOW - hours * HOUR, compared=compare_boards(fp32, 1000.0))
    covered = replace(COMPARED, sessions=recall(path))
    verdict = judge_speed(covered, 1.0)
    assert verdict.scope == "this policy on pi, 5 sessions on 3 days"
    alone = judge_speed(COMPARED, 1.05)
    assert (alone.outcome, alone.scope) == (Outcome.SUPPORTED, "this policy on pi, this session")
    assert verdict.low < alone.low
    assert judge_speed(covered, 1.05).outcome is Outcome.INCONCLUSIVE
    growth = judge_growth([covered, COMPARED], 1.0)
    assert growth.scope == "these policies on pi, 5 sessions on 3 days"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("when,", "date,"), "its columns are to be when, machine"),
        ((",1.15,", ",nan,"), "speed is nan, no ratio; drop the line"),
        ((",1.15,", ",-1,"), "speed is -1.0, no ratio; drop the line"),
        ((",1.15,", ",fast,"), "could not convert string to float: 'fast'; mend or drop the line"),
        (("T19:00Z", " 7 pm"), "does not match format"),
        ((",1.15,1", ""), "its columns are to be"),
    ],
)
def test_a_damaged_file_is_named_before_a_board_is_asked(tmp_path, monkeypatch, capsys, change, message):
    path = tmp_path / "speed.sessions.csv"
    store(path, NOW - HOUR)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    before = path.read_bytes()
    for use in (recall, lambda path: store(path, NOW), lambda path: check_file(path, IDENTITY, RATIOS)):
        with pytest.raises(StoreError, match=r"sessions\.csv: "):
            use(path)
    assert path.read_bytes() == before
    monkeypatch.setattr("quarl_bench.backends.artefact.read_artefact", lambda _: None)
    monkeypatch.setattr("quarl_bench.boards.session.open_session", lambda *_: pytest.fail("a board was leased"))
    assert main(["board", "local", "a", "b", "--sessions", str(path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_a_file_that_cannot_be_written_is_told_before_a_board_is_asked(tmp_path, monkeypatch, capsys):
    (tmp_path / "taken").write_text("a file, and no folder")
    monkeypatch.setattr("quarl_bench.backends.artefact.read_artefact", lambda _: None)
    monkeypatch.setattr("quarl_bench.boards.session.open_session", lambda *_: pytest.fail("a board was leased"))
    assert main(["board", "local", "a", "b", "--sessions", str(tmp_path / "taken" / "speed.csv")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith(f"quarl board: cannot write folder {tmp_path / 'taken'}: ")


def test_sessions_are_of_two_artefacts(capsys):
    assert main(["board", "local", "a", "--sessions", "speed.csv"]) == 2
    assert "--sessions is of a timing: name two artefacts, or leave it out" in capsys.readouterr().err
