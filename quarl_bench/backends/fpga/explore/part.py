"""What a part holds, and what a design takes of it."""

from dataclasses import dataclass

from quarl_bench.errors import SpecError


@dataclass(frozen=True)
class Part:
    """A Xilinx 7-series part; six-input look-up tables, RAMB36 blocks."""

    name: str
    luts: int
    ffs: int
    block_rams: float
    dsps: int


PARTS = {
    part.name: part
    for part in (
        Part("xc7a15t", 10_400, 20_800, 25, 45),  # LQCC's Table 2
        Part("xc7a35t", 20_800, 41_600, 50, 90),  # of an Arty A7-35T
        Part("xc7a100t", 63_400, 126_800, 135, 240),  # of an Arty A7-100T
    )
}


@dataclass(frozen=True)
class Resources:
    """What a design takes. `luts_raw` are cells; `luts` are estimated after two small ones share a site."""

    luts_raw: int
    luts: int
    ffs: int
    block_rams: float
    dsps: int

    def shares(self, part: Part) -> dict[str, float]:
        """Use of each resource, as a share of what the part has."""
        return {
            "LUT": self.luts / part.luts,
            "FF": self.ffs / part.ffs,
            "BRAM": self.block_rams / part.block_rams,
            "DSP": self.dsps / part.dsps,
        }

    def bottleneck(self, part: Part) -> tuple[str, float]:
        """The resource that is used most, and its share."""
        shares = self.shares(part)
        name = max(shares, key=lambda key: shares[key])
        return name, shares[name]


def find_part(name: str) -> Part:
    """The part called `name`; SpecError with the known ones otherwise."""
    if name not in PARTS:
        raise SpecError(f"unknown part {name!r}; known are {', '.join(PARTS)}")
    return PARTS[name]
