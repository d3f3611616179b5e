"""The golden model: a net that runs on integers only behind its input quantization.

Sums are exact whatever type carries them, and the requantization rule is a named one. Every exported artefact is
compared with this, layer by layer.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.branches import Branch, find_stem, join
from quarl_bench.quantization.carried import CarriedLayer, CarriedNet
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.net import Floats, Outputs, refuse_state
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.products.sums import Sums, build_sums
from quarl_bench.quantization.recurrent.cells import PARTS, CellKind, State, find_width, list_steps, split_state
from quarl_bench.quantization.recurrent.quantized import QuantizedCell, find_rule, list_formats
from quarl_bench.quantization.requantize import RULES, Requantization, count_thresholds, find_thresholds

INTEGER_PARTS = dict.fromkeys(CellKind, 2)  # arrays of a cell's state in integers: hidden, and of 16 bits


@dataclass(frozen=True, eq=False)
class IntegerNet:
    """A QuantizedNet's integers with a requantization rule."""

    input_shape: tuple[int, ...]
    input: ActivationFormat
    layers: tuple[QuantizedLayer, ...]
    requantization: Requantization = Requantization.FP32_RNE
    cells: tuple[QuantizedCell, ...] = ()
    branches: tuple[Branch, ...] = ()

    @classmethod
    def from_quantized(
        cls, net: QuantizedNet, requantization: Requantization = Requantization.FP32_RNE
    ) -> "IntegerNet":
        """The net that computes with the integers of `net` and no floats between its layers."""
        return cls(net.input_shape, net.input, net.layers, requantization, net.cells, net.branches)

    @property
    def outputs(self) -> int:
        """Values that the net gives for one observation."""
        return len(self.layers[-1].bias)

    @property
    def recurrent(self) -> bool:
        """Whether it has a state."""
        return bool(self.cells)

    @property
    def output(self) -> ActivationFormat:
        """Bits, scale and zero_point of the integers that the last layer gives."""
        return self.layers[-1].result

    def with_requantization(self, requantization: Requantization) -> "IntegerNet":
        """The same integers under another rule."""
        return replace(self, requantization=requantization)

    def forward(self, x: Floats) -> Outputs:
        """Outputs (n, outputs), dequantized, for float inputs (n, *input_shape)."""
        if self.requantization is Requantization.FP32_RNE and not self.recurrent:
            return self.output.dequantize(self._carried.run_steps(self.input.count_steps(x)))
        return self.output.dequantize(self.run(self.input.quantize(x)))

    def run(self, q: Integers) -> Integers:
        """Output integers for input integers (n, *input_shape)."""
        refuse_state(self, "a run without a state")
        if self.requantization is Requantization.FP32_RNE:
            return self._carried.run(q)
        return self.trace(q)[-1]

    def __post_init__(self) -> None:
        if self.cells and self.requantization is Requantization.THRESHOLDS:
            raise QuantizationError(
                "a recurrent cell's sums have 16 bits, too many for thresholds; requantize as fp32_rne"
            )

    def initial_state(self, count: int) -> State:
        """The state of `count` episodes that begin: integers that stand for 0, hidden and cell state of each cell."""
        return tuple(
            np.full((count, find_width(self.layers, cell)), zero, np.int64)
            for cell in self.cells
            for zero in (cell.hidden.zero_point, 0)
        )

    def adopt(self, state: State) -> State:
        """A state of the fp32 net as this one has it, rounded; its own as it is."""
        if state and all(part.dtype.kind == "i" for part in state):
            return state
        parts = split_state(state, self.cells, PARTS)
        found: list[Integers] = []
        for cell in self.cells:
            hidden, *rest = parts[cell.place]
            found += [cell.hidden.quantize(hidden), cell.cell.quantize(rest[0] if rest else hidden)]
        return tuple(found)

    def step(self, x: Floats, state: State) -> tuple[Outputs, State]:
        """Outputs (n, outputs), dequantized, and the next state, for float inputs (n, *input_shape)."""
        q, state = self.run_step(self.input.quantize(x), state)
        return self.output.dequantize(q), state

    def run_step(self, q: Integers, state: State) -> tuple[Integers, State]:
        """Output integers and the next state, for input integers (n, *input_shape) and the state before."""
        parts, rescale = split_state(state, self.cells, INTEGER_PARTS), find_rule(self.requantization)
        cells = {cell.place: cell for cell in self.cells}
        behind: list[Integers] = []
        if self.branches:
            q = join(self.branches, q, self.run_layer)
        for index, _ in list_steps(self.layers, self.cells, find_stem(self.branches)):
            q = self.run_layer(index, q)
            if index in cells:
                hidden, memory = parts[index]
                q, memory = cells[index].step(q, self.run_layer(index + 1, hidden), memory, rescale)
                behind += [q, memory]
        return q, tuple(behind)

    def trace(self, q: Integers) -> tuple[Integers, ...]:
        """Integers behind every layer, layer by layer: what `run` and every artefact are compared with."""
        refuse_state(self, "a trace without a state")
        out: list[Integers] = []

        def run(index: int, q: Integers) -> Integers:
            out.append(self.run_layer(index, q))
            return out[-1]

        if self.branches:
            q = join(self.branches, q, run)
        for index in range(find_stem(self.branches), len(self.layers)):
            q = run(index, q)
        return tuple(out)

    def run_layer(self, index: int, q: Integers) -> Integers:
        """One layer: exact sums, and unless they are the output, requantization, clip, and the activation's table."""
        layer, source = self.layers[index], self.sources[index]
        acc = self.accumulate(index, q)
        if layer.output.wide:
            return acc
        highest = layer.output.format.maximum
        if self.requantization is Requantization.THRESHOLDS:
            out = np.maximum(count_thresholds(acc, self._thresholds[index], layer.output.format.minimum), layer.lowest)
        else:
            weight_scale = layer.weight_scale.reshape((-1,) + (1,) * (acc.ndim - 2))
            rounded = RULES[self.requantization](
                acc, np.asarray(source.scale), weight_scale, np.asarray(layer.output.scale)
            )
            out = np.clip(rounded + layer.output.zero_point, layer.lowest, highest)
        return out if layer.tabled is None else layer.table[out - layer.output.format.minimum]

    def accumulate(self, index: int, q: Integers) -> Integers:
        """Exact sums (n, outputs, ...) of one layer, bias included, for the integers that it reads."""
        sums = self._sums[index]
        with torch.inference_mode():
            found = sums.add_up(torch.from_numpy(q - self.sources[index].zero_point)).numpy()
        return np.asarray(found, dtype=np.int64)

    @cached_property
    def sources(self) -> tuple[ActivationFormat, ...]:
        """What each layer reads."""
        return list_formats(self.input, self.layers, self.cells, self.branches)[:-1]

    @cached_property
    def _sums(self) -> tuple[Sums, ...]:
        pairs = zip(self.layers, self.sources, strict=True)
        return tuple(build_sums(layer, source) for layer, source in pairs)

    @cached_property
    def _carried(self) -> CarriedNet:
        layers = zip(self.layers, self.sources, self._sums, strict=True)
        carried = tuple(CarriedLayer.build(*layer) for layer in layers)
        return CarriedNet(self.input, carried, self.output, self.branches)

    @cached_property
    def _thresholds(self) -> tuple[Integers, ...]:
        return tuple(
            find_thresholds(
                np.asarray(source.scale),
                layer.weight_scale,
                np.asarray(layer.output.scale),
                layer.output.zero_point,
                layer.output.format.minimum,
                layer.output.format.maximum,
            )
            for layer, source in zip(self.layers, self.sources, strict=True)
            if not layer.output.wide  # the last one's
        )
