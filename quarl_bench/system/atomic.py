"""Publishing files and folders whole or not at all: a killed process leaves nothing a reader could mistake for data.

What grows in place instead, an unfinished run, belongs to one process at a time.
"""

import contextlib
import ctypes
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from quarl_bench.errors import StoreError

PAGES = (".html", ".htm")  # endings of a page
RESULTS = ".json"
ABANDONED_SECONDS = 24 * 3600.0  # seconds
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


@contextlib.contextmanager
def new_folder(target: Path, *holds: str) -> Iterator[Path]:
    """Yield an empty folder that becomes `target`, or what it links to, when the block ends without an error.

    An existing `target` is replaced only as `check_replaceable` says; old and new change places in one step. The
    temporary folder is a sibling, so that the final rename stays inside one file system. Raises StoreError when
    `target` is something else or cannot be written.
    """
    check_replaceable(target, *holds)
    with _one_line_for("folder", target):
        place = _resolve_link(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(place)
        work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent))
    try:
        with _one_line_for("folder", target):
            yield work
            _replace_folder(work, place)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_replaceable(target: Path, *holds: str) -> None:
    """StoreError unless `target` is absent, empty, or has a file called as one of `holds`, which tell its kind."""
    with _one_line_for("folder", target):
        known = not target.exists() or any((target / name).exists() for name in holds)
        if not known and not is_empty(target):
            raise StoreError(
                f"{target} exists and holds no {' or '.join(holds)}; it is left alone: choose another folder"
            )


def is_empty(folder: Path) -> bool:
    """Whether it is a folder that holds nothing."""
    return folder.is_dir() and not any(folder.iterdir())


def write_file(target: Path, content: str | bytes) -> None:
    """Write `content` to `target`, or what it links to, through a temporary sibling and an atomic replace.

    StoreError when it cannot.
    """
    data = content.encode() if isinstance(content, str) else content
    with _one_line_for("file", target):
        place = _resolve_link(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=".tmp", dir=place.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            Path(name).chmod(0o644)  # mkstemp's 0600 would hide a shared result from other users
            Path(name).replace(place)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _resolve_link(target: Path) -> Path:
    """What is replaced: a link stays, and what it points to changes."""
    return Path(os.path.realpath(target)) if target.is_symlink() else target


def open_file(path: Path, *endings: str) -> Path:
    """`path`, to be written later, in a folder that can be written now; StoreError for anything else.

    A file that is there is replaced if its name has one of `endings`, which tell its kind, and is left alone if not.
    """
    if path.is_dir():
        raise StoreError(f"{path}: a folder; name the file to write in it")
    if endings and path.is_file() and path.stat().st_size and path.suffix not in endings:
        raise StoreError(f"{path} exists and is no {endings[0]} file; it is left alone: choose another name")
    open_folder(path.parent)
    return path


def open_folder(folder: Path) -> Path:
    """`folder`, made if need be; StoreError now, not after an hour of work, when it cannot be written."""
    with _one_line_for("folder", folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):  # a name of its own: others probe at the same moment
            pass
    return folder


def remove_folder(folder: Path) -> None:
    """Remove `folder`, for readers in one step: a process that is killed meanwhile leaves no half of it."""
    if not folder.exists():
        return
    _remove_leftovers(folder)
    hidden = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".tmp", dir=folder.parent))
    with contextlib.suppress(OSError):
        folder.rename(hidden / folder.name)
    for rest in (hidden, folder):
        shutil.rmtree(rest, ignore_errors=True)


@contextlib.contextmanager
def lock_run(folder: Path, otherwise: str = "") -> Iterator[None]:
    """Keep what grows in `folder` to this process while the block lasts; a killed process lets go of it.

    Raises StoreError when another process holds it, which says to wait or to do `otherwise`, or where a lock cannot be
    made.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder.with_name(f".{folder.name}.lock"), blocking=False)
    with _one_line_for("folder", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire()
        except Timeout:
            advice = f"wait, or {otherwise}" if otherwise else "wait"
            raise StoreError(f"{folder} is in use by another process; {advice}") from None
    try:
        yield
    finally:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


@contextlib.contextmanager
def lock_file(target: Path) -> Iterator[None]:
    """Keep `target`, which is read and written again, to this process while the block lasts; others wait for it.

    StoreError where a lock cannot be made beside it.
    """
    from filelock import FileLock

    with _one_line_for("file", target):
        place = _resolve_link(target)
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place.with_name(f".{place.name}.lock"))
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _replace_folder(work: Path, target: Path) -> None:
    work.chmod(0o755)  # mkdtemp's 0700 would hide a shared result from other users
    if not target.exists():
        work.rename(target)
    elif not _exchange(work, target):  # the old content is now in `work`, which the caller removes
        old = work.with_suffix(".old")
        target.rename(old)
        try:
            work.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Hidden folders of killed processes; a living one does not take so long between two writes."""
    for folder in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        with contextlib.suppress(OSError):  # another process may remove it at the same moment
            if time.time() - folder.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two paths in one step, so that there is no moment without `other`; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


@contextlib.contextmanager
def _one_line_for(kind: str, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {kind} {target}: {error.strerror or error}; choose a writable place with free space"
        ) from error
