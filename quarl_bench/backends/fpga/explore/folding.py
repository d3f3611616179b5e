"""How many values a cycle travel on each link, and what follows from it for the whole design: memories, cycles.

The lanes of the links decide everything: a layer between two links is a `Unit` (`unit.py`).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property

from quarl_bench.backends.fpga.explore.rom import Rom
from quarl_bench.backends.fpga.explore.unit import Unit
from quarl_bench.backends.fpga.rtl.stage import Stage, signed_bits
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.parameters import SUM_BITS

LUTS_PER_BLOCK_RAM = 60  # look-up tables that a RAMB36 has to save


@dataclass(frozen=True)
class Folding:
    """`lanes[0]` input values a cycle, then the outputs of each layer; `steps[i]` bits of layer i a search stage finds.

    A layer that returns its sums searches nothing: its step is 0. `levels` adder levels (the products are the first)
    stand between two registers. ROMs take at most `block_rams` RAMB36, those first that save most look-up tables, and
    layers that multiply take at most `dsps` DSPs.
    """

    lanes: tuple[int, ...]
    steps: tuple[int, ...]
    levels: int = 2
    block_rams: float = 22.5
    dsps: int = 40


@dataclass(frozen=True, eq=False)
class FoldingPlan:
    """Layers under a folding: everything that the generator writes down.

    Plans that are made with one `shared` dictionary share the units that are equal, and what was found out about them.
    """

    stages: tuple[Stage, ...]
    folding: Folding
    units: tuple[Unit, ...] = field(init=False)
    shared: InitVar[dict[tuple[int, ...], Unit] | None] = None

    def __post_init__(self, shared: dict[tuple[int, ...], Unit] | None) -> None:
        widths = (self.stages[0].inputs, *(stage.outputs for stage in self.stages))
        lanes, steps = self.folding.lanes, self.folding.steps
        if len(lanes) != len(widths) or any(not 1 <= n <= width for n, width in zip(lanes, widths, strict=True)):
            raise DeploymentError(f"fpga: lanes {lanes} for links of {widths} values; give one number from 1 for each")
        known = [step == 0 if stage.wide else 1 <= step <= 8 for stage, step in zip(self.stages, steps, strict=False)]
        if len(steps) != len(self.stages) or not all(known) or self.folding.levels < 1:
            raise DeploymentError(
                f"fpga: steps {steps} and levels {self.folding.levels}; give 1..8 bits for each layer, 0 for sums"
            )
        known_units = {} if shared is None else shared
        units = []
        for index, stage in enumerate(self.stages):
            key = (index, lanes[index], lanes[index + 1], steps[index], self.folding.levels)
            if key not in known_units:
                known_units[key] = Unit(stage, *key[1:])
            units.append(known_units[key])
        object.__setattr__(self, "units", tuple(units))

    @property
    def in_bits(self) -> int:
        """Bits of one value of the observation, as the first layer reads it."""
        return self.stages[0].in_bits

    @property
    def in_lanes(self) -> int:
        """Input values that arrive in one cycle."""
        return self.folding.lanes[0]

    @property
    def in_beats(self) -> int:
        """Cycles in which an observation arrives."""
        return self.units[0].in_beats

    @property
    def out_signed(self) -> bool:
        """Whether an output value is a two's complement integer."""
        return self.stages[-1].wide or self.stages[-1].lowest < 0

    @property
    def out_bits(self) -> int:
        """Of an output value, as the output format's integer."""
        last = self.stages[-1]
        if last.wide:
            return SUM_BITS
        top = last.lowest + last.highest
        return signed_bits(last.lowest, top) if self.out_signed else max(1, top.bit_length())

    @property
    def out_bytes(self) -> int:
        """Of an output value, where it travels in bytes."""
        return -(-self.out_bits // 8)

    @property
    def cycles(self) -> int:
        """From the clock edge that takes the first beat of an observation to the one that can take the action."""
        beats = (self.in_beats, *(unit.beats for unit in self.units))
        return sum(beats) - len(beats) + sum(unit.delay for unit in self.units) + 1

    @property
    def pipelined(self) -> bool:
        """Whether an observation can enter in every cycle: all vectors take one beat, and all move together."""
        return self.in_beats == 1 and all(unit.beats == 1 for unit in self.units)

    @cached_property
    def roms(self) -> tuple[Rom, ...]:
        """All memories of more than one word."""
        return tuple(rom for unit in self.units for rom in unit.roms if rom.depth > 1)

    @cached_property
    def in_blocks(self) -> frozenset[str]:
        """Names of the ROMs in block RAM: the best per block first, or the largest first, whichever saves more."""
        worthy = [rom for rom in self.roms if rom.luts >= LUTS_PER_BLOCK_RAM * rom.blocks]
        by_block = self._fill_blocks(sorted(worthy, key=lambda rom: (-rom.luts / rom.blocks, rom.name)))
        by_size = self._fill_blocks(sorted(worthy, key=lambda rom: (-rom.luts, rom.name)))
        best = max(by_block, by_size, key=lambda roms: sum(rom.luts for rom in roms))
        return frozenset(rom.name for rom in best)

    def _fill_blocks(self, roms: Sequence[Rom]) -> list[Rom]:
        left, chosen = self.folding.block_rams, []
        for rom in roms:
            if rom.blocks <= left:
                left -= rom.blocks
                chosen.append(rom)
        return chosen

    @cached_property
    def in_dsps(self) -> frozenset[str]:
        """Names of the layers whose products are DSPs: those with most products first, as long as all of them fit."""
        left, chosen = self.folding.dsps, set()
        for unit in sorted(self.units, key=lambda unit: -unit.multipliers):
            if unit.multiplies and unit.multipliers <= left:
                left -= unit.multipliers
                chosen.add(unit.name)
        return frozenset(chosen)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the numbers and the folding: what a board answers with."""
        content = hashlib.sha256(repr(self.folding).encode())
        for stage in self.stages:
            content.update(repr((stage.in_bits, stage.in_signed, stage.low, stage.out_bits, stage.lowest)).encode())
            content.update(stage.weight.tobytes() + stage.thresholds.tobytes())
            if stage.offsets is not None:
                content.update(stage.offsets.tobytes())
            if stage.table is not None:
                content.update(stage.table.tobytes())
        return content.digest()


def choose_steps(stages: Sequence[Stage], widest: int = 3, wide_step: int = 2) -> tuple[int, ...]:
    """All thresholds at once up to `widest` bits, a search of `wide_step` bits a stage above; 0 where none are."""
    return tuple(stage.count_bits if stage.count_bits <= widest else wide_step for stage in stages)
