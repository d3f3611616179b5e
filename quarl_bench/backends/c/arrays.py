"""Constant arrays of a C program: small ones as text, large ones in one binary file that the assembler includes.

Forty megabytes of numbers as text take a compiler many seconds and gigabytes; as a file they take none.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST_TEXT = 1 << 15  # bytes of an array that is written as text
ALIGNMENT = 64  # of arrays in the file, so that vector loads do not straddle cache lines
PER_LINE = 16
BLOB, ASSEMBLY = "weights.bin", "weights.S"
C_TYPES = {"int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "int32": "int32_t", "float32": "float"}
C_TYPES["float64"] = "double"


@dataclass(eq=False)
class Arrays:
    """Declarations in the order in which they are added, and the files that the large ones lie in."""

    prefix: str  # of symbols that the linker sees
    text: bool = False  # whether large ones, too, are written as text
    large: bytearray = field(default_factory=bytearray)
    symbols: list[str] = field(default_factory=list)

    def declare(self, name: str, values: NDArray[Any]) -> str:
        """The C declaration of a constant array."""
        kind = C_TYPES[values.dtype.name]
        if self.text or values.nbytes <= LARGEST_TEXT:
            return f"static const {kind} {name}[{values.size}] QUARL_ALIGN = {{\n{_format(values)}\n}};"
        self.large.extend(bytes(-len(self.large) % ALIGNMENT))
        begin = len(self.large)
        self.large.extend(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes())
        symbol = f"{self.prefix}_{name}"
        self.symbols.append(
            f"    .globl {symbol}\n    .hidden {symbol}\n    .balign {ALIGNMENT}\n{symbol}:\n"
            f'    .incbin "{BLOB}", {begin}, {values.nbytes}\n'
        )
        return f"extern const {kind} {symbol}[{values.size}] QUARL_HIDDEN;\n#define {name} {symbol}"

    def files(self) -> dict[str, bytes]:
        """The large arrays and the assembly that includes them; nothing when all are text."""
        if not self.symbols:
            return {}
        assembly = "    .section .rodata\n" + "".join(self.symbols) + '    .section .note.GNU-stack,"",%progbits\n'
        return {ASSEMBLY: assembly.encode(), BLOB: bytes(self.large)}


def _format(values: NDArray[Any]) -> str:
    if values.dtype.kind == "f":  # hexadecimal: exact, and short
        suffix = "f" if values.dtype == np.float32 else ""
        words = [float(value).hex() + suffix for value in values.ravel()]
    else:
        words = [_write_integer(int(value)) for value in values.ravel()]
    return ",\n".join(", ".join(words[i : i + PER_LINE]) for i in range(0, len(words), PER_LINE))


def _write_integer(value: int) -> str:
    return "-2147483647 - 1" if value == -(1 << 31) else str(value)  # C has no literal for it
