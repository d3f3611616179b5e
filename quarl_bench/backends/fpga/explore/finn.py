"""FINN's own formulas (v0.10.1): what its dataflow of a policy would cost, without running it.

A matrix-vector unit with PE rows and SIMD columns a cycle takes (outputs / PE) * (inputs / SIMD) cycles. `fold` raises
SIMD, then PE, over divisors until a unit is below the target, as FINN's SetFolding does; LQCC swept it in powers
of ten and padded observations and actions to multiples of 32. Sizes are estimates of estimates: FINN fits them for
UltraScale parts, and its tools find more to share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

PADDING = 32  # LQCC, section 3.4
WIDEST_WEIGHTS = 36  # bits of a unit's weight stream, FINN's mvau_wwidth_max
CLOCK = 100e6  # Hz
BLOCK_SHAPES = ((1, 16384), (2, 8192), (4, 4096), (9, 2048))  # (width, depth) of a RAMB18


@dataclass(frozen=True)
class Mvau:
    """FINN's matrix-vector unit under a folding. `out_bits` is 0 where sums leave as they are."""

    outputs: int
    inputs: int
    in_bits: int
    in_signed: bool
    weight_bits: int
    out_bits: int
    pe: int = 1
    simd: int = 1

    @property
    def cycles(self) -> int:
        """Clock cycles that the unit needs for one vector."""
        return (self.outputs // self.pe) * (self.inputs // self.simd)

    @property
    def accumulator_bits(self) -> int:
        """By the bound on sums of these types."""
        alpha = math.log2(self.inputs) + self.weight_bits + self.in_bits - 1 - int(self.in_signed)
        return math.ceil(alpha + math.log2(1 + 2**-alpha) + 1)

    @property
    def threshold_luts(self) -> int:
        """Of stored thresholds in look-up tables and their comparators, for all PE."""
        levels = (1 << self.out_bits) - 1
        depth = math.ceil(self.outputs / self.pe / 64)
        return self.pe * levels * self.accumulator_bits * (depth + 1)

    @property
    def luts(self) -> int:
        """FINN's estimate for a unit of look-up tables; weights in block RAM."""
        both = self.weight_bits + self.in_bits
        products = self.simd * (2 * math.ceil(both / 6) - 1) * both
        tree = both * (2 * self.simd - 1)
        return int(300 + 1.1 * (self.pe * (products + tree + self.accumulator_bits) + self.threshold_luts))

    @property
    def block_rams(self) -> float:
        """FINN's estimate of RAMB36 for the weights; up to 128 words stay in look-up tables."""
        width, depth = self.simd * self.weight_bits * self.pe, self.cycles
        if depth <= 128:
            return 0.0
        for shape, words in BLOCK_SHAPES:
            if width <= shape:
                return math.ceil(depth / words) / 2
        if width <= 18 or depth > 512:
            return math.ceil(depth / 1024) * math.ceil(width / 18) / 2
        return math.ceil(depth / 512) * math.ceil(width / 36) / 2


@dataclass(frozen=True)
class Dataflow:
    """The units of all layers, one behind the other."""

    units: tuple[Mvau, ...]

    @property
    def cycles(self) -> int:
        """FINN's estimate of the latency: all units one after the other."""
        return sum(unit.cycles for unit in self.units)

    @property
    def interval(self) -> int:
        """Cycles between two actions: those of the slowest unit."""
        return max(unit.cycles for unit in self.units)

    @property
    def luts(self) -> int:
        """FINN's estimate for the units, without FIFOs and width converters."""
        return sum(unit.luts for unit in self.units)

    @property
    def block_rams(self) -> float:
        """Block RAMs of 18 Kbit that FINN's formula gives for the weights of all layers together."""
        return sum(unit.block_rams for unit in self.units)


def build_dataflow(widths: Sequence[int], input_bits: int, core_bits: int, output_bits: int) -> Dataflow:
    """Unfolded units of LQCC's policy of these widths; `output_bits` of 0 leaves the last sums as they are."""
    padded = [pad(widths[0]), *widths[1:-1], pad(widths[-1])]
    last = len(widths) - 2
    return Dataflow(
        tuple(
            Mvau(
                outputs=padded[index + 1],
                inputs=padded[index],
                in_bits=core_bits if index else input_bits,
                in_signed=index == 0,
                weight_bits=core_bits,
                out_bits=output_bits if index == last else core_bits,
            )
            for index in range(last + 1)
        )
    )


def pad(width: int) -> int:
    """Round a width up to the next multiple of 32, as FINN pads observations and outputs of its streams."""
    return -(-width // PADDING) * PADDING


def fold(dataflow: Dataflow, actions_per_second: float) -> Dataflow:
    """FINN's SetFolding for a target rate."""
    return Dataflow(tuple(_fold_unit(unit, CLOCK / actions_per_second) for unit in dataflow.units))


def _fold_unit(unit: Mvau, target: float) -> Mvau:
    for simd in _divisors(unit.inputs):
        wider = replace(unit, simd=simd)
        if wider.cycles >= target and unit.weight_bits * simd > WIDEST_WEIGHTS:
            break
        unit = wider
        if unit.cycles < target:
            return unit
    for pe in _divisors(unit.outputs):
        unit = replace(unit, pe=pe)
        if unit.cycles < target:
            break
    return unit


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
