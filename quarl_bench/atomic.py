"""Publishing files and folders whole or not at all: a killed process leaves nothing a reader could mistake for data."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from quarl_bench.errors import StoreError


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `target` when the block ends without an error.

    The temporary folder is a sibling, so that the final rename stays inside one file system. An existing `target`
    is moved aside first and removed last. Raises StoreError when the parent cannot be written.
    """
    with _one_line_for("folder", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
    try:
        yield work
        with _one_line_for("folder", target):
            _replace_folder(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_file(target: Path, content: str | bytes) -> None:
    """Write `content` to `target` through a temporary sibling and an atomic replace; StoreError when it cannot."""
    data = content.encode() if isinstance(content, str) else content
    with _one_line_for("file", target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o644)  # mkstemp's 0600 would hide a shared result from other users
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _replace_folder(work: Path, target: Path) -> None:
    work.chmod(0o755)
    if target.exists():
        old = work.with_suffix(".old")
        target.rename(old)
        try:
            work.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        work.rename(target)


@contextlib.contextmanager
def _one_line_for(kind: str, target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write {kind} {target}: {error.strerror or error}; choose a writable place with free space"
        ) from error
