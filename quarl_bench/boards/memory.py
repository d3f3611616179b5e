"""A board with little memory, made of this machine: a control group with a limit, and somewhere to swap to.

For Figure 4's swap cliff; root only. Both disappear with the block that asked for them.
"""

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from quarl_bench.boards.session import Session
from quarl_bench.boards.timing import BoardComparison, TimingPlan
from quarl_bench.errors import BoardError

VERSION_1, VERSION_2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
SECONDS = 120.0
SWAP_FOLDER = "QUARL_SWAP"  # where the environment says that a swap file may be made
SWAP = 512 << 20
PLENTY = 1 << 30
# Of what fp32 takes more, the tightest first. A kernel ends a process that swaps all the time; and with half of it, it
# hardly swaps, because files and libraries give way first.
SHARES = (0.25, 0.375, 0.5)
KILLED = "signal 9"  # what a session says of a process that the kernel ended
PEAKS = ("memory.max_usage_in_bytes", "memory.peak")  # cgroup version 1, and 2
GLANCE = TimingPlan(blocks=2, calls=3, seconds=0.0, warmup=0.0, insist=True)


def find_obstacle() -> str:
    """Why this process cannot have a board with little memory; empty where it can try."""
    if os.geteuid() != 0:
        return "the swap cliff needs root, to limit memory"
    if not os.environ.get(SWAP_FOLDER) and len(_read(Path("/proc/swaps")).splitlines()) < 2:
        return f"the swap cliff needs swap: {SWAP_FOLDER}=FOLDER makes a file of {SWAP >> 20} MiB there"
    return ""


@dataclass(frozen=True)
class LimitedComparison:
    """Two artefacts compared with all memory, and with `memory` bytes of it and swap."""

    memory: int
    free: BoardComparison
    limited: BoardComparison


def compare_limited(session: Session, pair: tuple[Path, Path], plan: TimingPlan) -> LimitedComparison:
    """Both with all memory, and with what the second takes of it and a share of what the first takes more.

    The share is the smallest of `SHARES` with which the kernel lets them run. BoardError where it ends them all the
    same, or no control group can be made, or no swap.
    """
    folder = os.environ.get(SWAP_FOLDER)
    free = session.compare(pair, plan)
    with contextlib.ExitStack() as stack:
        if folder:
            stack.enter_context(enable_swap(Path(folder), SWAP))
        first, second = (_find_peak(session, artefact) for artefact in pair)
        for share in SHARES:
            limit = second + int(share * max(0, first - second))
            limited = _compare_within(session, pair, plan, limit)
            if limited is not None:
                return LimitedComparison(limit, free, limited)
    raise BoardError(f"the kernel ends processes with {limit:,} bytes of memory and swap, at the most that were tried")


def _compare_within(session: Session, pair: tuple[Path, Path], plan: TimingPlan, limit: int) -> BoardComparison | None:
    """Both with `limit` bytes of memory; None where the kernel ends one of them."""
    with limit_memory(limit) as group:
        try:
            return session.compare(pair, plan, cgroup=group)
        except BoardError as error:
            if KILLED in str(error):
                return None
            raise


def _find_peak(session: Session, artefact: Path) -> int:
    """Bytes that a control group counts at most while processes run this artefact, files in memory included."""
    with limit_memory(PLENTY) as group:
        session.compare((artefact, artefact), GLANCE, cgroup=group)
        for name in PEAKS:
            if peak := _read(Path(group) / name):
                return int(peak)
    raise BoardError(f"{group} does not tell its peak ({', '.join(PEAKS)}); use Linux 5.19 or newer")


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
