"""The C compiler of this machine: found, named, and asked for shared libraries, which are kept in the cache."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from filelock import FileLock

from quarl_bench.errors import DeploymentError, StoreError
from quarl_bench.system.atomic import write_file
from quarl_bench.system.places import default_cache
from quarl_bench.system.processor import read_processor
from quarl_bench.system.programs import Program

OPTIMIZE = ("-O3", "-march=native")
STANDARD = "-std=c99"  # which keeps a product and its sum apart, in what plays and in what is timed
SECONDS = 600  # for a compiler
LIBRARY = "libquarl.so"
PROGRAM = "harness.c"  # the one source that is a program, and in no library
ANOTHER = "name another compiler in CC"


def find_compiler() -> str:
    """The C compiler: CC, else cc or gcc; DeploymentError when there is none, or it is broken."""
    for name in (os.environ.get("CC"), "cc", "gcc"):
        if name and shutil.which(name):
            Program(name, "gcc").find("c")
            return name
    raise DeploymentError("c: no C compiler (cc, gcc); install one, or name it in CC")


def identify_compiler() -> tuple[str, str]:
    """Name and version of the compiler."""
    name = find_compiler()
    return f"{name} {' '.join(OPTIMIZE)}", _ask_version(shutil.which(name))


@cache
def _ask_version(path: str | None) -> str:
    done = subprocess.run([path or "", "-dumpfullversion"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def compile_library(files: Mapping[str, bytes], flags: tuple[str, ...], folder: Path, remedy: str = ANOTHER) -> Path:
    """Write `files` into `folder` and make a shared library of them, without warnings.

    DeploymentError without a compiler, and with its first complaint and the `remedy` when it refuses.
    """
    for name, content in files.items():
        (folder / name).write_bytes(content)
    sources = [name for name in files if name.endswith((".c", ".S")) and name != PROGRAM]
    options = [STANDARD, "-Wall", "-Wextra", "-Werror", *OPTIMIZE, *flags, "-fPIC", "-shared", "-o", LIBRARY]
    command = [find_compiler(), *options, *sources, "-lm"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeploymentError(f"c: {command[0]} did not run ({error}); {ANOTHER}") from error
    if done.returncode != 0:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise DeploymentError(f"c: {command[0]} refuses {complaint[:200]}; {remedy}")
    return folder / LIBRARY


def load_library(files: Mapping[str, bytes], flags: tuple[str, ...] = ()) -> ctypes.CDLL:
    """The library of `files`, from the cache or compiled into it, once per compiler, processor and source.

    StoreError where the cache cannot be written, or holds another thing; DeploymentError as `compile_library`.
    """
    return _load_library(tuple(sorted(files.items())), flags)


@cache
def _load_library(files: tuple[tuple[str, bytes], ...], flags: tuple[str, ...]) -> ctypes.CDLL:
    facts = [
        *identify_compiler(),
        *OPTIMIZE,
        *flags,
        read_processor("flags", "Features"),  # which -march=native means
        *(content.decode() for _, content in files),
    ]
    name = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]
    path = default_cache() / "kernels" / f"{name}.so"
    lock = FileLock(path.with_suffix(".lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise StoreError(
            f"cannot write the cache {default_cache()}: {error.strerror or error}; choose another place with "
            "QUARL_CACHE_DIR"
        ) from error
    try:
        if not path.exists():
            with tempfile.TemporaryDirectory(prefix="quarl-c-") as folder:
                write_file(path, compile_library(dict(files), flags, Path(folder)).read_bytes())
    finally:
        lock.release()
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise StoreError(
            f"{path} cannot be loaded ({error}); delete it, or choose another cache with QUARL_CACHE_DIR"
        ) from error
