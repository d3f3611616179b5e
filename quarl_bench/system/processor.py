"""The processor that this runs on, in the kernel's words."""

from functools import cache
from pathlib import Path

DESCRIPTION = Path("/proc/cpuinfo")
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # instructions that multiply it: on x86, and on Arm
FAST = (  # those that a time of products in any precision depends on
    "avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_int8", "amx_bf16",
    "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip


@cache
def read_processor(*names: str) -> str:
    """The first field of `/proc/cpuinfo` that has one of `names`; empty where there is none, or no Linux."""
    try:
        lines = DESCRIPTION.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    fields = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in fields if name.strip() in names), "")


def list_fast_instructions() -> list[str]:
    """Those of `FAST` that it has; none where nothing says so."""
    instructions = _list_instructions()
    return [name for name in FAST if name in instructions]


def describe_processor() -> str:
    """Its model and those instructions, as "AMD EPYC (avx2 fma)": what products are rounded by; else "unknown"."""
    model, instructions = read_processor("model name") or "unknown", " ".join(list_fast_instructions())
    return f"{model} ({instructions})" if instructions else model


def lacks_bf16() -> bool:
    """Whether products in bf16 are emulated, two to eleven times slower than fp32; False where nothing says so."""
    instructions = _list_instructions()
    return bool(instructions) and BF16.isdisjoint(instructions)


def _list_instructions() -> list[str]:
    return read_processor("flags", "Features").split()
