"""Verilator's headers, compiled once: they are most of what g++ reads of a small design and of its testbench.

The compiled headers outlive a run, beside pytest's own folders, as ccache takes what was compiled with others for
something else. A compiler that does not take them, as after an update, reads the headers themselves.
"""

import os
import subprocess
from functools import cache
from pathlib import Path

from filelock import FileLock

INCLUDED = ("cstdint", "cstdio", "cstdlib", "deque", "random", "vector", "verilated.h")
# As Verilator's makefiles call the compiler; of other settings the compiled headers are none.
SETTINGS = ("-O0", "-faligned-new", "-fcf-protection=none", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TRACE=0",
            "-DVM_TRACE_FST=0", "-DVM_TRACE_VCD=0")  # fmt: skip


@cache
def compile_headers(folder: Path) -> None:
    """For all designs that this process, and those it starts, have Verilator build; `folder` is kept."""
    header = folder / "verilator-headers" / "designs.h"
    header.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(header.with_suffix(".lock")):
        if not header.exists():
            root = _ask("verilator", "--getenv", "VERILATOR_ROOT")
            text = "".join(f"#include <{name}>\n" for name in INCLUDED)
            scratch = header.with_suffix(".new")
            scratch.write_text(text)
            compiled = header.with_suffix(".h.gch")
            _ask("g++", *SETTINGS, f"-I{root}/include", "-x", "c++-header", scratch, "-o", compiled)
            scratch.replace(header)
    os.environ["MAKEFLAGS"] = os.environ["MAKEFLAGS"].replace("OPT_FAST=-O0", rf"OPT_FAST=-O0\ -include\ {header}")


def _ask(*command: object) -> str:
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout.strip()
