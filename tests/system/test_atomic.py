"""Whole or not at all: errors, kills and unwritable places."""

import os
import shutil
import signal
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE

import pytest

from quarl_bench.errors import StoreError
from quarl_bench.system import atomic
from quarl_bench.system.atomic import lock_run, new_folder, open_folder, remove_folder, write_file
from quarl_bench.training.schemes import ELSEWHERE
from tests.support.forks import Fork
from tests.support.places import ROOT

MARK = "mark"  # the file that tells a folder of this kind from any other

FOLDER = """
with new_folder(target, MARK) as work:
    (work / "half").write_text("x")
    hang()
"""
FILE = """
os.fsync = hang  # the bytes are written, the name is not yet theirs
write_file(target, "new")
"""
SWAP = """
atomic._exchange = lambda *_: False
rename = Path.rename
Path.rename = lambda path, to: hang() if path.name.endswith(".tmp") else rename(path, to)
with new_folder(target, MARK) as work:
    (work / "whole").write_text("x")
"""
HOLD = """
with lock_run(target):
    hang()
"""


def kill_during(code: str, target: Path, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Run `code` in a process of its own and kill it, without any chance to clean up, where it calls `hang`."""
    prelude = f"""
        import os, sys, time
        from pathlib import Path
        from quarl_bench.system import atomic
        from quarl_bench.system.atomic import lock_run, new_folder, write_file
        target, MARK = Path({str(target)!r}), {MARK!r}
        def hang(*_):
            print("here", flush=True)
            time.sleep(60)
    """
    with Fork("-c", textwrap.dedent(prelude) + code, stdout=PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        meanwhile()
        process.kill()
        assert process.poll() == -signal.SIGKILL


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_in(target: Path, error: Exception) -> None:
    with new_folder(target, MARK) as work:
        (work / "half").touch()
        raise error


def write_folder(target: Path, name: str) -> None:
    with new_folder(target, MARK) as work:
        (work / name).touch()
        (work / MARK).touch()


def hold(target: Path) -> None:
    with lock_run(target):
        pytest.fail("held")


WRITERS = {
    "file": lambda target: write_file(target, "x"),
    "folder": lambda target: write_folder(target, "x"),
    "run": hold,
}


@pytest.fixture(params=["exchange", "two_renames"])
def swap(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Also where the system cannot exchange two paths in one step."""
    if request.param == "two_renames":
        monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    return request.param


@pytest.mark.usefixtures("swap")
def test_a_folder_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "target"
    with new_folder(target, MARK) as work:
        (work / "a").write_text("1")
        assert not target.exists()
    assert (target / "a").read_text() == "1"
    assert target.stat().st_mode & 0o777 == 0o755
    assert names_in(target.parent) == ["target"]


@pytest.mark.usefixtures("swap")
@pytest.mark.parametrize("empty", [False, True], ids=["marked", "empty"])
def test_an_existing_folder_is_replaced_as_a_whole(tmp_path: Path, empty: bool) -> None:
    target = tmp_path / "target"
    if empty:
        target.mkdir()
    else:
        write_folder(target, "old")
    write_folder(target, "new")
    assert names_in(target) == [MARK, "new"]
    assert names_in(tmp_path) == ["target"]
    assert target.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_somebody_elses_is_left_alone(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "target"
    if kind == "file":
        target.write_text("thesis")
    else:
        target.mkdir()
        (target / "thesis").touch()
    with pytest.raises(StoreError, match=f"exists and holds no {MARK}; it is left alone: choose another folder"):
        write_folder(target, "new")
    assert target.read_text() == "thesis" if kind == "file" else names_in(target) == ["thesis"]
    assert names_in(tmp_path) == ["target"]


@pytest.mark.parametrize("error, seen", [(ValueError, ValueError), (KeyboardInterrupt,) * 2, (OSError, StoreError)])
@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_an_error_in_the_block_leaves_what_was_there(tmp_path: Path, error: type, seen: type, existing: bool) -> None:
    """A full disk, which shows inside the block, is a StoreError."""
    target = tmp_path / "target"
    if existing:
        write_folder(target, "old")
    with pytest.raises(seen, match="mine"):
        fail_in(target, error("mine"))
    assert names_in(tmp_path) == (["target"] if existing else [])
    assert not existing or names_in(target) == [MARK, "old"]


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_a_killed_writer_leaves_no_folder_or_the_old_one(tmp_path: Path, existing: bool) -> None:
    target = tmp_path / "target"
    if existing:
        write_folder(target, "old")
    kill_during(FOLDER, target)
    assert target.exists() is existing
    assert not existing or names_in(target) == [MARK, "old"]
    assert all(name.startswith(".target.") for name in names_in(tmp_path) if name != "target")
    write_folder(target, "new")  # what the dead left behind is in nobody's way
    assert names_in(target) == [MARK, "new"]


def test_a_writer_killed_between_the_two_renames_loses_neither_folder(tmp_path: Path) -> None:
    """Only where there is no exchange in one step."""
    target = tmp_path / "target"
    write_folder(target, "old")
    kill_during(SWAP, target)
    assert not target.exists()
    assert sorted(path.name for path in tmp_path.glob(".target.*/*")) == [MARK, "old", "whole"]


@pytest.mark.parametrize("content", ["text \u00e9\n", b"\x00\xff"], ids=["text", "bytes"])
def test_a_file_is_written_and_replaced(tmp_path: Path, content: str | bytes) -> None:
    target = tmp_path / "deep" / "file"
    write_file(target, "something longer than what follows")
    write_file(target, content)
    assert target.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert target.stat().st_mode & 0o777 == 0o644
    assert names_in(target.parent) == ["file"]


@pytest.mark.parametrize("existing", [False, True], ids=["new", "existing"])
def test_a_killed_writer_leaves_no_file_or_the_old_one(tmp_path: Path, existing: bool) -> None:
    target = tmp_path / "target"
    if existing:
        target.write_text("old")
    kill_during(FILE, target)
    assert target.exists() is existing
    assert not existing or target.read_text() == "old"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "target").write_text("old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="No space left on device; choose a writable place"):
        write_file(tmp_path / "target", "new")
    assert names_in(tmp_path) == ["target"]
    assert (tmp_path / "target").read_text() == "old"


def test_a_failed_swap_puts_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refuse(path: Path, to: Path) -> Path:
        if path.name.endswith(".tmp"):
            raise OSError(28, "No space left on device")
        return rename(path, to)

    target = tmp_path / "target"
    write_folder(target, "old")
    monkeypatch.setattr(atomic, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(StoreError, match="No space left"):
        write_folder(target, "new")
    assert names_in(tmp_path) == ["target"]
    assert names_in(target) == [MARK, "old"]


@pytest.mark.parametrize("place", ["file", "proc", "long"])
@pytest.mark.parametrize("kind", ["folder", "file", "run"])
def test_an_unwritable_place_is_one_line(tmp_path: Path, place: str, kind: str) -> None:
    (tmp_path / "file").touch()
    parent = {"file": tmp_path / "file", "proc": Path("/proc/none"), "long": tmp_path / ("x" * 300)}[place]
    if place == "proc" and not Path("/proc/self").exists():
        pytest.skip("no /proc here")
    written = "file" if kind == "file" else "folder"
    with pytest.raises(StoreError, match=f"cannot write {written} .*; choose a writable place") as caught:
        WRITERS[kind](parent / "target")
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_removed_is_gone_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / MARK).write_text("")
    remove_folder(tmp_path / "absent")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if killed behind the first step
    remove_folder(folder)
    assert not folder.exists()
    assert all(path.name.startswith(".run.") for path in tmp_path.iterdir())
    monkeypatch.undo()
    folder.mkdir()
    remove_folder(folder)
    assert len(list(tmp_path.iterdir())) == 1


def test_places_are_tried_by_many_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(open_folder, [tmp_path / "place"] * 400)) == {tmp_path / "place"}
    assert list((tmp_path / "place").iterdir()) == []


def test_an_unfinished_run_belongs_to_one_process(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "run"

    def hold_too() -> None:
        with pytest.raises(StoreError, match=r"is in use by another process; wait$"):
            hold(target)

    kill_during(HOLD, target, hold_too)
    with lock_run(target):  # a killed process lets go
        hold_too()
        with pytest.raises(StoreError, match=r"wait, or choose another folder$"), lock_run(target, ELSEWHERE):
            pass
        target.touch()
    assert names_in(target.parent) == ["run"]


def test_a_link_stays_and_what_it_points_to_changes(tmp_path):
    (tmp_path / "real").mkdir()
    for name, real in (("folder", "real"), ("dangling", "new"), ("file", "text")):
        (tmp_path / name).symlink_to(tmp_path / real)
    for name in ("folder", "dangling"):
        with new_folder(tmp_path / name, MARK) as work:
            (work / MARK).write_text(name)
    write_file(tmp_path / "file", "text")
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "dangling", "file", "real", "new", "text"}
    assert all((tmp_path / name).is_symlink() for name in ("folder", "dangling", "file"))
    assert [(tmp_path / name / MARK).read_text() for name in ("real", "new")] == ["folder", "dangling"]
    assert (tmp_path / "text").read_text() == "text"
