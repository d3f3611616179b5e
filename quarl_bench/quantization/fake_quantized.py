"""The fake-quantized forward: float32 arithmetic on numbers that integers could hold.

Equal to the integer forward, exactly, at power-of-two scales, as long as sums stay below 2^24; otherwise each layer,
given equal inputs, is within one step of it (in front of a table), because float32 sums round where integer sums
do not.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.branches import Branch, find_stem, join
from quarl_bench.quantization.net import Floats, Net, refuse_state
from quarl_bench.quantization.parameters import ActivationFormat, PartedFormat, QuantizedLayer
from quarl_bench.quantization.recurrent.cells import Cell
from quarl_bench.quantization.recurrent.quantized import QuantizedCell, list_formats


@dataclass(frozen=True, eq=False)
class QuantizedNet:
    """A net with integer parameters and activation formats; `input` is the format of the net's input."""

    input_shape: tuple[int, ...]
    input: ActivationFormat
    layers: tuple[QuantizedLayer, ...]
    cells: tuple[QuantizedCell, ...] = ()  # which are computed on integers alone
    branches: tuple[Branch, ...] = ()

    @property
    def outputs(self) -> int:
        """Values that the net gives for one observation."""
        return len(self.layers[-1].bias)

    @property
    def recurrent(self) -> bool:
        """Whether it has a state."""
        return bool(self.cells)

    @cached_property
    def formats(self) -> tuple[ActivationFormat, ...]:
        """What each layer reads, and last what the net returns."""
        return list_formats(self.input, self.layers, self.cells, self.branches)

    @cached_property
    def dequantized(self) -> Net:
        """The fp32 net that the integer weights and biases stand for."""
        pairs = zip(self.layers, self.formats, strict=False)
        layers = tuple(layer.dequantized(source.scale) for layer, source in pairs)
        cells = tuple(Cell(cell.kind, cell.place) for cell in self.cells)
        return Net(self.input_shape, layers, cells, self.branches)

    def forward(self, x: Floats) -> Floats:
        """Outputs (n, outputs), every activation rounded to its format; wide outputs are as float32 sums them."""
        refuse_state(self, "a fake-quantized forward")
        with torch.inference_mode():
            y = fake_quantize(torch.from_numpy(x), self.input)
            if self.branches:
                y = join(self.branches, y, self._forward_layer)
            for index in range(find_stem(self.branches), len(self.layers)):
                y = self._forward_layer(index, y)
            return np.asarray(y.numpy())

    def _forward_layer(self, index: int, x: torch.Tensor) -> torch.Tensor:
        layer, float_layer = self.layers[index], self.dequantized.layers[index]
        y = float_layer.affine(x, *self.dequantized.tensors[index])
        if layer.activation is Activation.RELU:
            y = torch.relu(y)
        if layer.output.wide:
            return y
        y = fake_quantize(y, layer.output)
        return y if layer.tabled is None else _look_up(y, layer, layer.tabled)


def _look_up(y: torch.Tensor, layer: QuantizedLayer, behind: ActivationFormat) -> torch.Tensor:
    """What the table holds for numbers that `layer.output` has rounded."""
    front = layer.output
    index = torch.round(y * float(np.float32(1) / front.scale)).long() + (front.zero_point - front.format.minimum)
    return torch.from_numpy(behind.dequantize(layer.table))[index]


def fake_quantize(x: torch.Tensor, format: ActivationFormat) -> torch.Tensor:
    """Quantize and dequantize in float32: nearest even, multiplication by the reciprocal scale."""
    if isinstance(format, PartedFormat):
        parts = torch.split(x, list(format.widths), dim=1)
        return torch.cat([fake_quantize(own, part) for own, part in zip(parts, format.parts, strict=True)], dim=1)
    low, high = format.format.minimum - format.zero_point, format.format.maximum - format.zero_point
    steps = torch.round(x * float(np.float32(1) / format.scale))
    return steps.clamp(low, high) * float(format.scale)
