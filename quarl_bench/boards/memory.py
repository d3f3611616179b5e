"""A board with little memory, made of this machine: a control group with a limit, and somewhere to swap to.

For the demonstration of Figure 4's swap cliff; root only. Both disappear with the block that asked for them.
"""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from quarl_bench.errors import BoardError

VERSION_1, VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
SECONDS = 120.0


@contextlib.contextmanager
def limit_memory(limit: int) -> Iterator[str]:
    """Folder of a new control group whose processes get `limit` bytes of memory; cgroup version 1 or 2."""
    if (VERSION_1 / "memory.limit_in_bytes").exists():
        root, key = VERSION_1, "memory.limit_in_bytes"
    elif "memory" in _read(VERSION_2 / "cgroup.subtree_control").split():
        root, key = VERSION_2, "memory.max"
    else:
        raise BoardError("no control group of this machine limits memory; boot with the memory controller")
    group = root / f"quarl-{uuid.uuid4().hex[:12]}"
    try:
        group.mkdir()
        (group / key).write_text(str(limit))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        raise BoardError(f"{group}: {error.strerror}; run as root, outside a container that owns it") from error
    try:
        yield str(group)
    finally:
        _remove(group)


@contextlib.contextmanager
def enable_swap(folder: Path, size: int) -> Iterator[None]:
    """Swap on a new file of `size` bytes in `folder`."""
    file = folder / f"quarl-{uuid.uuid4().hex[:12]}.swap"
    try:
        with file.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, size)
        file.chmod(0o600)
        _run("mkswap", str(file))
        _run("swapon", str(file))
        try:
            yield
        finally:
            _run("swapoff", str(file))
    except OSError as error:
        raise BoardError(f"{file}: {error.strerror}; name a folder of a disk with free space") from error
    finally:
        file.unlink(missing_ok=True)


def _run(program: str, *arguments: str) -> None:
    found = shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/sbin:/usr/sbin")
    if found is None:
        raise BoardError(f"{program} is not here; apt install util-linux")
    done = subprocess.run([found, *arguments], capture_output=True, timeout=SECONDS, check=False)  # noqa: S603
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["no word"]
        raise BoardError(f"{program}: {said[-1]}; run as root, on a disk that can hold swap")


def _remove(group: Path) -> None:
    """Its processes have ended, but the kernel may need a moment to notice."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
