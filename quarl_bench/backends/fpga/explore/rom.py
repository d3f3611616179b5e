"""Constants of a design in memories: look-up tables or block RAM, whichever is smaller."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

from quarl_bench.quantization.affine import Integers

SHALLOW = 64  # words of a ROM that one look-up table holds, a bit each


BLOCK_WIDTHS = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))  # (depth, width) of half a RAMB36


@dataclass(frozen=True, eq=False)
class Rom:
    """A memory of the design: `depth` words of `count` fields of `bits` bits, the first field lowest."""

    name: str
    depth: int
    count: int
    bits: int
    load: Callable[[], Integers]  # its fields (depth, count)

    @cached_property
    def width(self) -> int:
        """Bits of one word of the memory: `count` values beside each other."""
        return self.count * self.bits

    @cached_property
    def luts(self) -> float:
        """What it takes in look-up tables: two 32-word bits share one, wider ones are joined by multiplexers."""
        return self.width * max(0.5, -(-self.depth // SHALLOW)) if self.depth > 1 else 0.0

    @cached_property
    def blocks(self) -> float:
        """What it takes in RAMB36: halves of the cheapest shape."""
        return _count_blocks(self.depth, self.width)

    @property
    def words(self) -> list[int]:
        """The words as non-negative numbers."""
        mask = (1 << self.bits) - 1
        fields = self.load().reshape(self.depth, self.count)
        return [sum((int(value) & mask) << (index * self.bits) for index, value in enumerate(row)) for row in fields]


@cache
def _count_blocks(depth: int, width: int) -> float:
    """Of a ROM: those of an exploration are a million, of a few hundred shapes."""
    return min(-(-depth // deep) * -(-width // wide) for deep, wide in BLOCK_WIDTHS) / 2
