"""The C backend: source that computes a policy on integers alone, compiled here to prove it.

An artefact holds source, not machine code: `make test` proves it again wherever there is a compiler.
"""

import ctypes
import functools
import json
import platform
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import Backend, CompiledCode, Files, Port, check_input
from quarl_bench.backends.c.source import read_resource, write_float_source, write_integer_source
from quarl_bench.backends.files import GOLDEN
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.system import compiler
from quarl_bench.system.compiler import SECONDS, STANDARD, compile_library, find_compiler, identify_compiler

MODEL = "policy.c"
X86 = platform.machine() in {"x86_64", "AMD64", "i386", "i686"}
UNSIGNED = {"u8xs8-float": ("-DQUARL_U8", "-DQUARL_FLOAT"), "u8xs8": ("-DQUARL_U8",)}
SIGNED = {"s8xs8-float": ("-DQUARL_S8", "-DQUARL_FLOAT"), "s8xs8": ("-DQUARL_S8",)}
INTEGER_KERNELS = UNSIGNED | SIGNED if X86 else SIGNED | UNSIGNED  # the first is the machine's own: it has floats
# What lets sums be vectorised, one by one: linking with -ffast-math turns off subnormal numbers in the whole process.
REORDER = ("-fassociative-math", "-freciprocal-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno",
           "-ffinite-math-only")  # fmt: skip
FLOAT_KERNELS: dict[str, tuple[str, ...]] = {"strict": (), "fast-math": REORDER}
KERNELS = INTEGER_KERNELS | FLOAT_KERNELS
RUNS = 3  # of a harness, of which the fastest counts: whatever else the machine does makes one slower


def write_model(policy: IntegerPolicy | PolicyNet) -> dict[str, bytes]:
    """Source, harness and Makefile of a policy; DeploymentError for what the kernels cannot compute."""
    integer = isinstance(policy, IntegerPolicy)
    source = write_integer_source(policy) if isinstance(policy, IntegerPolicy) else write_float_source(policy)
    floats = not isinstance(policy, IntegerPolicy) or (policy.net.output.wide and not policy.head.discrete)
    kernels = INTEGER_KERNELS if integer else FLOAT_KERNELS
    words = ["+".join(flags) or "-DQUARL_STRICT" for flags in kernels.values()]
    settings = f"KERNELS = {' '.join(words)}\nLIBRARIES ={' -lm' if floats else ''}\n"
    return source | {
        "harness.c": read_resource("harness.c"),
        "library.c": read_resource("library.c"),
        "Makefile": settings.encode() + read_resource("Makefile"),
    }


class CRunner:
    """A policy's source, compiled for this machine and called through ctypes."""

    def __init__(self, files: Files, kernel: str) -> None:
        """Compile and load; DeploymentError without a compiler, and with its first complaint when it refuses."""
        known = INTEGER_KERNELS if "kernels.h" in files else FLOAT_KERNELS
        if kernel not in known:
            raise DeploymentError(f"c: unknown kernel {kernel!r}; known are {', '.join(known)}")
        self.kernel = kernel
        wanted = tuple(sorted(files.items())), known[kernel], shutil.which(find_compiler())
        with _find_lock(*wanted):  # several threads may want it at once
            code = _compile_once(*wanted)
        with tempfile.TemporaryDirectory(prefix="quarl-c-") as folder:
            # From a file of its own: the source computes in static memory, which no two runners are to share.
            library = Path(folder, "libpolicy.so")
            library.write_bytes(code)
            self._library = ctypes.CDLL(str(library))
        self._run = self._library.policy_run_batch
        self._run.restype, self._run.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        self.input, self.output = self._describe(0), self._describe(1)

    def run(self, x: NDArray[Any]) -> NDArray[Any]:
        """Outputs of a batch, as the protocol says."""
        check_input("c", x, self.input)
        x = np.ascontiguousarray(x)
        y = np.empty((len(x), *self.output.shape), dtype=self.output.dtype)
        self._run(x.ctypes.data, y.ctypes.data, len(x))
        return y

    def _describe(self, which: int) -> Port:
        shape, scale = (ctypes.c_int * 3)(), ctypes.c_float()
        zero_point, size = ctypes.c_int(), ctypes.c_int()
        places = [ctypes.byref(place) for place in (scale, zero_point, size)]
        rank = self._library.policy_describe(which, shape, *places)
        dtype = {-1: np.int8, 1: np.uint8, -4: np.int32, 4: np.float32}[size.value]
        known = None if dtype is np.float32 else np.float32(scale.value)
        return Port(np.dtype(dtype), tuple(shape[:rank]), known, zero_point.value)


@functools.lru_cache(maxsize=16)
def _find_lock(*wanted: Any) -> threading.Lock:  # noqa: ARG001
    return threading.Lock()


@functools.lru_cache(maxsize=16)
def _compile_once(files: tuple[tuple[str, bytes], ...], flags: tuple[str, ...], compiler: str | None) -> bytes:
    """The library of `files`, which is asked for as an artefact is measured, exported and read again."""
    del compiler  # another one makes another library
    with tempfile.TemporaryDirectory(prefix="quarl-c-") as folder:
        return compile_library(dict(files), flags, Path(folder), "export again").read_bytes()


def compile_code(artefact: Path, kernel: str) -> CompiledCode:
    """The policy's own code, compiled for this machine, and the artefact's own harness around it.

    An inference is timed as `make test` does, by the fastest of `RUNS` runs: neither Python nor the observation
    transform are in it.
    """
    command = [find_compiler(), STANDARD, *compiler.OPTIMIZE, *KERNELS[kernel]]
    with tempfile.TemporaryDirectory() as folder:
        objects = _compile_objects(command, artefact, folder)
        _run([*command, "-o", "harness", *_list_sources(artefact, "harness.c"), *objects, "-lm"], folder)
        harness = Path(folder, "harness").read_bytes()
        return CompiledCode(_count_sections("size", objects, folder), partial(_time_harness, harness, artefact))


def measure_code(compile: Sequence[str], sizer: str, artefact: Path) -> int:
    """Bytes of the policy's code and constants by any compiler and the `size` that belongs to it."""
    with tempfile.TemporaryDirectory() as folder:
        return _count_sections(sizer, _compile_objects(compile, artefact, folder), folder)


def _compile_objects(compile: Sequence[str], artefact: Path, folder: str) -> list[str]:
    """Names of the policy's object files, in `folder`: without library, program and observation transform."""
    sources = _list_sources(artefact, MODEL, "weights.S")
    _run([*compile, f"-Wa,-I{artefact.absolute()}", "-c", *sources], folder)
    return [path.name for path in Path(folder).glob("*.o")]


def _count_sections(sizer: str, objects: Sequence[str], folder: str) -> int:
    table = _run([sizer, "-A", *objects], folder)
    return sum(int(size) for size in re.findall(r"^\.(?:text|rodata|data)\S*\s+(\d+)", table, re.MULTILINE))


def _time_harness(harness: bytes, artefact: Path, calls: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "harness")
        program.write_bytes(harness)
        program.chmod(0o700)
        run = [str(program), str(artefact.absolute() / GOLDEN), str(calls)]
        return min(float(json.loads(_run(run, folder))["mean_ns"]) for _ in range(RUNS))


def _list_sources(artefact: Path, *names: str) -> list[str]:
    return [str(path.absolute()) for name in names if (path := artefact / name).exists()]


def _run(command: Sequence[str], folder: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        what = f"c: the code cannot be measured ({error})"
        raise DeploymentError(f"{what}; install gcc and binutils") from error
    return done.stdout


def _list_weight_types(files: Files) -> tuple[str, ...]:
    layers = files[MODEL].count(b"static void layer_")
    return ("INT8" if "kernels.h" in files else "FLOAT32",) * layers


C = Backend(
    name="c",
    model=MODEL,
    kernels=tuple(INTEGER_KERNELS),
    float_kernels=tuple(FLOAT_KERNELS),
    identify=identify_compiler,
    write=write_model,
    start=CRunner,
    recurrent=True,
    branched=True,
    list_weight_types=_list_weight_types,
    compile_code=compile_code,
)
