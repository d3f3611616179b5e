"""A layer as hardware sees it: unsigned integers times signed weights, and thresholds on the raw sums.

Bias and zero points only shift a sum, and the table of a Tanh or an ELU never falls, so all of them move into the
thresholds: output = lowest + number of thresholds <= sum. Between layers travels that number, which is never negative.

The table of a SiLU, a GELU or a HardSwish falls before it rises. Its thresholds are where it changes, and a memory says
what it is from there on: output = lowest + table[number of thresholds <= sum].

A last layer of wide outputs (`acc`) has no thresholds: output = sum + offset, and the offset is bias and zero points.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.backends.base import FP32_RULES, refuse_rule
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Linear
from quarl_bench.quantization.parameters import SUM_BITS, ActivationFormat, QuantizedLayer
from quarl_bench.quantization.requantize import find_thresholds


@dataclass(frozen=True, eq=False)
class Stage:
    """One layer. Inputs are codes in [low, high] of `in_bits`; outputs are codes in [0, 2^out_bits).

    An output is the count of the thresholds that its sum reaches, or what `table` has for that count. Of a `wide`
    stage, outputs are sums, in two's complement of `out_bits`; it has `offsets` in the place of thresholds.
    """

    name: str
    weight: NDArray[np.integer[Any]]  # (outputs, inputs)
    in_bits: int
    in_signed: bool
    low: int
    high: int
    thresholds: Integers  # (outputs, 2^count_bits - 1), ascending, within each sum's reach or one above it; wide: none
    out_bits: int
    lowest: int  # the output integer that a code of zero stands for; wide: 0
    offsets: Integers | None = None  # (outputs,), what turns a raw sum into the golden model's
    table: Integers | None = None  # (2^count_bits,), the code for each count; only where one falls

    @property
    def inputs(self) -> int:
        """Values that each neuron of the layer reads."""
        return self.weight.shape[1]

    @property
    def outputs(self) -> int:
        """Neurons of the layer, which is the number of values that it gives."""
        return self.weight.shape[0]

    @property
    def wide(self) -> bool:
        """Whether it returns its sums."""
        return self.offsets is not None

    @property
    def count_bits(self) -> int:
        """Of a count of thresholds; wide: 0."""
        return self.thresholds.shape[1].bit_length()

    @cached_property
    def weight_bits(self) -> int:
        """Of the narrowest signed format that holds all weights; at least 2."""
        return max(2, signed_bits(int(self.weight.min()), int(self.weight.max())))

    @cached_property
    def product_bits(self) -> int:
        """Bits, sign included, of the largest product of a weight and an input value."""
        largest = int(np.abs(self.weight.astype(np.int64)).max()) * max(abs(self.low), abs(self.high))
        return signed_bits(-largest, largest)

    @cached_property
    def most_weights(self) -> int:
        """Weights that are not 0, of the neuron that has most of them."""
        return int((self.weight != 0).sum(1).max())

    @cached_property
    def reach(self) -> tuple[Integers, Integers]:
        """Smallest and largest sum of each neuron."""
        return reach(self.weight, self.low, self.high)

    @cached_property
    def sum_bits(self) -> int:
        """Of a signed format that holds every sum and every threshold."""
        smallest, largest = self.reach
        return signed_bits(int(smallest.min()), int(largest.max()) + 1)

    @cached_property
    def highest(self) -> int:
        """The largest code that a neuron can give."""
        _, largest = self.reach
        count = int((self.thresholds <= largest[:, None]).sum(1).max())
        return count if self.table is None else int(self.table[: count + 1].max())

    @property
    def zeros(self) -> float:
        """Share of the integer weights that are 0, from 0 to 1; such products cost no logic."""
        return float((self.weight == 0).mean())

    def run(self, codes: Integers) -> Integers:
        """Codes, or of a wide stage sums, (n, outputs) for codes (n, inputs)."""
        sums = codes @ self.weight.astype(np.int64).T
        if self.offsets is not None:
            return np.asarray(sums + self.offsets, dtype=np.int64)
        counts = (sums[:, :, None] >= self.thresholds[None]).sum(2)
        return np.asarray(counts if self.table is None else self.table[counts], dtype=np.int64)


def split(net: IntegerNet) -> tuple[Stage, ...]:
    """The stages of `net`; DeploymentError for convolutions and for rules that thresholds do not reproduce."""
    refuse_rule("fpga", net.requantization, FP32_RULES)
    if net.recurrent:
        raise DeploymentError("fpga: a recurrent policy has a state, and designs have none; deploy to c")
    if net.branches:
        raise DeploymentError("fpga: an image among the observation's parts passes layers of its own; deploy to c")
    for index, layer in enumerate(net.layers, 1):
        if layer.kind is not Linear:
            raise DeploymentError(
                f"fpga: layer{index} is a convolution, and only Linear layers are supported; deploy to litert"
            )
    if len(net.input_shape) != 1:
        raise DeploymentError(
            f"fpga: an input of shape {net.input_shape}, and only vectors are supported; use a fully connected policy"
        )
    stages: list[Stage] = []
    source = net.input
    for index, layer in enumerate(net.layers):
        stages.append(_fold(f"layer{index + 1}", layer, source, stages[-1] if stages else None))
        source = layer.result
    return tuple(stages)


def reach(weight: NDArray[np.integer[Any]], low: int, high: int) -> tuple[Integers, Integers]:
    """Smallest and largest sum of each row of `weight` (n, inputs) over codes in [low, high]."""
    wide = weight.astype(np.int64)
    positive, negative = np.maximum(wide, 0).sum(1), np.minimum(wide, 0).sum(1)
    return positive * low + negative * high, positive * high + negative * low


def signed_bits(smallest: int, largest: int) -> int:
    """Width of the narrowest two's complement format that holds both."""
    return 1 + max((~value if value < 0 else value).bit_length() for value in (smallest, largest))


def _fold(name: str, layer: QuantizedLayer, source: ActivationFormat, previous: Stage | None) -> Stage:
    widths = {source.format.bit_width, layer.weight_format.bit_width}
    if not layer.output.wide:
        widths.add(layer.result.format.bit_width)
    if max(widths) > 8:
        raise DeploymentError(f"fpga: {name} has {max(widths)} bits, and at most 8 are supported; quantize further")
    shift = 0 if previous is None else previous.lowest  # a travelling code is the integer less this
    # The golden model's sum is that over codes and this: bias - zero_point * weights, and shift * weights.
    offsets = layer.bias.astype(np.int64) + (shift - source.zero_point) * layer.weight.astype(np.int64).sum(1)
    low, high = (source.format.minimum, source.format.maximum) if previous is None else (0, previous.highest)
    smallest, largest = reach(layer.weight, low, high)
    if layer.output.wide:
        thresholds, lowest, table = np.empty((len(offsets), 0), dtype=np.int64), 0, None
        out_bits = signed_bits(int((smallest + offsets).min()), int((largest + offsets).max()))
        if out_bits > SUM_BITS:
            raise DeploymentError(
                f"fpga: the sums of {name} take {out_bits} bits, and wide outputs have {SUM_BITS}; use fewer bits"
            )
    else:
        levels, codes, lowest = _levels(layer, source)
        count_bits = max(1, levels.shape[1].bit_length())
        unreached = (1 << count_bits) - 1 - levels.shape[1]
        table = None if codes is None else np.pad(codes, (0, unreached), mode="edge")
        out_bits = count_bits if table is None else int(table.max()).bit_length()
        spare = np.repeat(largest[:, None] + 1, unreached, axis=1)
        clipped = np.clip(levels - offsets[:, None], smallest[:, None], largest[:, None] + 1)
        thresholds = np.concatenate([clipped, spare], axis=1)
    return Stage(
        name=name,
        weight=layer.weight,
        in_bits=source.format.bit_width if previous is None else previous.out_bits,
        in_signed=previous is None and source.format.signed,
        low=low,
        high=high,
        thresholds=thresholds,
        out_bits=out_bits,
        lowest=lowest,
        offsets=offsets if layer.output.wide else None,
        table=table,
    )


def _levels(layer: QuantizedLayer, source: ActivationFormat) -> tuple[Integers, Integers | None, int]:
    """Thresholds (outputs, levels) on accumulators, codes (levels + 1,) between them, and the integer of code 0.

    The codes are None where they only count: where the thresholds are of every output integer above the lowest.
    """
    output = layer.output
    found = find_thresholds(
        np.asarray(source.scale),
        layer.weight_scale,
        np.asarray(output.scale),
        output.zero_point,
        output.format.minimum,
        output.format.maximum,
    )
    found = np.broadcast_to(found, (len(layer.bias), found.shape[1]))
    if layer.tabled is None:
        return found[:, layer.lowest - output.format.minimum :], None, layer.lowest
    steps = np.diff(layer.table)
    if (steps < 0).any():
        changes = np.flatnonzero(steps)
        lowest = int(layer.table.min())
        return found[:, changes], layer.table[np.append(0, changes + 1)] - lowest, lowest
    lowest, highest = int(layer.table[0]), int(layer.table[-1])
    # The first integer in front of the table that reaches each integer behind it.
    first = np.searchsorted(layer.table, np.arange(lowest + 1, highest + 1))
    return found[:, first - 1], None, lowest
