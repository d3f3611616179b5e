"""One layer of a design: how many multipliers and lanes work on it in each cycle, and what it stores.

A layer whose input arrives in one beat computes whole rows, as many a cycle as its output has lanes; any other adds
each beat to all its sums and hands them on when the last beat is in. Rows in front of columns cost the sum of their
beats, where rows behind rows would cost the product.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.fpga.explore.rom import Rom
from quarl_bench.backends.fpga.rtl.stage import Stage, reach, signed_bits
from quarl_bench.quantization.affine import Integers

DSP_BITS = 9  # products from this width on become DSPs, as synthesis tools do it
SPARSE_SHARE = 0.5  # share of the inputs that the fullest row of constants may read for the others to be left out


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
        terms = max(1, self.stage.most_weights)
        if terms > SPARSE_SHARE * self.stage.inputs:
            return None
        return np.argsort(self.stage.weight == 0, axis=1, kind="stable")[:, :terms]

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
