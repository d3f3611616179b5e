"""How many values a cycle travel on each link, and what follows from it: units, memories, cycles.

The lanes of the links decide everything. A layer whose input arrives in one beat computes whole rows, as many a cycle
as its output has lanes; any other adds each beat to all its sums and hands them on when the last beat is in. Rows in
front of columns cost the sum of their beats, where rows behind rows would cost the product.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import InitVar, dataclass, field
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.fpga.explore.rom import Rom
from quarl_bench.backends.fpga.rtl.stage import Stage, reach, signed_bits
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.parameters import SUM_BITS

DSP_BITS = 9  # products from this width on become DSPs, as synthesis tools do it
SPARSE_SHARE = 0.5  # share of the inputs that the fullest row of constants may read for the others to be left out
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


@dataclass(frozen=True)
class SearchStage:
    """One stage of the requantization of a layer: `step` bits after `known` are found."""

    index: int
    known: int
    step: int


@dataclass(frozen=True, eq=False)
class Unit:
    """One layer with the number of multipliers and lanes that work on it in each cycle."""

    stage: Stage
    in_lanes: int
    lanes: int
    step: int
    levels: int

    @property
    def name(self) -> str:
        """The layer's name, as modules and messages bear it."""
        return self.stage.name

    @cached_property
    def in_beats(self) -> int:
        """Cycles in which its input arrives."""
        return -(-self.stage.inputs // self.in_lanes)

    @cached_property
    def beats(self) -> int:
        """Cycles in which its output leaves."""
        return -(-self.stage.outputs // self.lanes)

    @cached_property
    def rows(self) -> bool:
        """Whether it computes complete rows."""
        return self.in_beats == 1

    @cached_property
    def terms(self) -> int:
        """Products that one neuron adds up in one cycle."""
        if self.taps is not None:
            return self.taps.shape[1]
        return self.stage.inputs if self.rows else self.in_lanes

    @cached_property
    def taps(self) -> NDArray[np.intp] | None:
        """Which inputs each row reads (lanes, terms), where weights are constants and most of them zero.

        Rows with fewer weights than the fullest read inputs that they multiply by zero.
        """
        if not self.rows or self.beats > 1:
            return None
        present = self.stage.weight != 0
        terms = max(1, int(present.sum(1).max()))
        if terms > SPARSE_SHARE * self.stage.inputs:
            return None
        return np.argsort(~present, axis=1, kind="stable")[:, :terms]

    @cached_property
    def multipliers(self) -> int:
        """Products that the whole layer computes in one cycle, over all of its lanes."""
        return self.terms * (self.lanes if self.rows else self.beats * self.lanes)

    @property
    def multiplies(self) -> bool:
        """Whether its products are too wide for tables, and their weights change."""
        return self.stage.in_bits + self.stage.weight_bits >= DSP_BITS and self.weights.depth > 1

    @cached_property
    def dot_delay(self) -> int:
        """Cycles from a product to its sum: the registers on the way through the adder tree."""
        return -(-(1 + (self.terms - 1).bit_length()) // self.levels)

    @cached_property
    def searches(self) -> tuple[SearchStage, ...]:
        """The binary search for a count, `step` bits a stage, most significant bits first; none for sums."""
        bits = self.stage.count_bits
        return tuple(
            SearchStage(index, known, min(self.step, bits - known))
            for index, known in enumerate(range(0, bits, max(1, self.step)))
        )

    @cached_property
    def delay(self) -> int:
        """Cycles from the last beat in to the first beat out."""
        hold = int(self.beats > 1) if self.rows else 1
        return hold + self.dot_delay + len(self.searches)

    @cached_property
    def padded(self) -> NDArray[np.int8]:
        """Weights (lanes * beats, lanes in * beats in), filled up with zeros."""
        rows = self.beats * self.lanes - self.stage.outputs
        columns = self.in_beats * self.in_lanes - self.stage.inputs
        return np.pad(self.stage.weight, ((0, rows), (0, 0 if self.rows else columns)))

    @cached_property
    def zeros(self) -> float:
        """Share of its products that are by zero."""
        return float((self._weight_fields() == 0).mean())

    @cached_property
    def product_bits(self) -> int:
        """Bits, sign included, of the largest product of a weight and an input value of the layer."""
        stage = self.stage
        largest = int(np.abs(stage.weight.astype(np.int64)).max()) * max(abs(stage.low), abs(stage.high))
        return signed_bits(-largest, largest)

    @property
    def part_bits(self) -> int:
        """Of a signed format for what one beat adds to a sum."""
        parts = self.padded.reshape(len(self.padded), -1, self.terms).reshape(-1, self.terms)
        smallest, largest = reach(parts, self.stage.low, self.stage.high)
        return min(self.stage.sum_bits, max(2, signed_bits(int(smallest.min()), int(largest.max()))))

    @cached_property
    def weights(self) -> Rom:
        """A word for each cycle: rows of lanes, or columns of a beat's values, neuron by neuron."""
        depth = self.beats if self.rows else self.in_beats
        return Rom(f"{self.name}_weights", depth, self.multipliers, self.stage.weight_bits, self._weight_fields)

    @cached_property
    def thresholds(self) -> tuple[tuple[Rom, ...], ...]:
        """ROMs of each search stage: one for all lanes where nothing is known yet, then one a lane."""
        return tuple(tuple(self._search_roms(search)) for search in self.searches)

    @cached_property
    def tables(self) -> tuple[Rom, ...]:
        """A memory for each lane with a word for each count, where codes are not the counts themselves."""
        given = self.stage.table
        if given is None:
            return ()
        lanes = range(self.lanes)
        return tuple(Rom(f"{self.name}_table{i}", len(given), 1, self.stage.out_bits, lambda: given) for i in lanes)

    @cached_property
    def offsets(self) -> Rom | None:
        """A word for each beat of a layer that returns its sums: what is added to those of its lanes."""
        given = self.stage.offsets
        if given is None:
            return None
        padded = np.pad(given, (0, self.beats * self.lanes - self.stage.outputs))
        return Rom(f"{self.name}_offsets", self.beats, self.lanes, self.stage.out_bits, lambda: padded)

    @cached_property
    def roms(self) -> tuple[Rom, ...]:
        """Everything that it stores, constants as memories of one word."""
        behind = () if self.offsets is None else (self.offsets,)
        return (self.weights, *(rom for group in self.thresholds for rom in group), *self.tables, *behind)

    def _weight_fields(self) -> Integers:
        padded = self.padded.astype(np.int64)
        if self.taps is not None:
            return np.take_along_axis(padded, self.taps, 1)
        return padded if self.rows else padded.reshape(len(padded), self.in_beats, self.terms).swapaxes(0, 1)

    def _search_roms(self, search: SearchStage) -> Iterator[Rom]:
        name, count = f"{self.name}_thresholds{search.index}", (1 << search.step) - 1
        bits = self.stage.sum_bits
        if search.known == 0:
            yield Rom(name, self.beats, self.lanes * count, bits, partial(self._threshold_fields, search))
            return
        for lane in range(self.lanes):
            load = partial(self._lane_fields, search, lane)
            yield Rom(f"{name}_lane{lane}", self.beats << search.known, count, bits, load)

    def _lane_fields(self, search: SearchStage, lane: int) -> Integers:
        return self._threshold_fields(search)[:, lane]

    def _threshold_fields(self, search: SearchStage) -> Integers:
        """Thresholds (beats, lanes, prefixes, thresholds) that a stage compares with."""
        bits = self.stage.count_bits
        filler = np.zeros((self.beats * self.lanes - self.stage.outputs, (1 << bits) - 1), dtype=np.int64)
        table = np.concatenate([self.stage.thresholds, filler]).reshape(self.beats, self.lanes, -1)
        prefixes = np.arange(1 << search.known) << (bits - search.known)
        offsets = np.arange(1, 1 << search.step) << (bits - search.known - search.step)
        return np.asarray(table[:, :, prefixes[:, None] + offsets[None, :] - 1])


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
