"""The processor that this runs on, in the kernel's words."""

from functools import cache
from pathlib import Path

DESCRIPTION = Path("/proc/cpuinfo")


@cache
def read_processor(*names: str) -> str:
    """The first field of `/proc/cpuinfo` that has one of `names`; empty where there is none, or no Linux."""
    try:
        lines = DESCRIPTION.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in fields if name.strip() in names), "")
