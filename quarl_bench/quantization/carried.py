"""Integers carried by floats: the golden model's numbers at about the speed of an fp32 net.

A sum of products of small integers is a whole number that float32 holds exactly, in any order of summation, while it
stays below 2^24; float64 holds the others. Nothing is converted between layers, and requantization is the rule
`fp32_rne` itself: a multiplication in float32, then to nearest even.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.branches import Branch, find_stem, join
from quarl_bench.quantization.net import Conv2d, Floats
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.requantize import effective_scale

EXACT_FLOAT32 = 1 << 24  # whole numbers up to here have no rounding error in float32, in any order of summation


@dataclass(frozen=True, eq=False)
class Sums:
    """Exact sums of one layer, in the fastest float type that holds every partial sum without rounding."""

    weight: torch.Tensor
    bias: torch.Tensor
    stride: int | None  # None: fully connected

    @classmethod
    def build(cls, layer: QuantizedLayer, source: ActivationFormat) -> "Sums":
        """For inputs of the format `source`; QuantizationError where a sum can leave 32 bits."""
        widest = max(abs(source.format.minimum - source.zero_point), abs(source.format.maximum - source.zero_point))
        rows = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.weight), -1).sum(1)
        largest = int((rows * widest + np.abs(layer.bias.astype(np.int64))).max())
        if largest >= 1 << 31:
            raise QuantizationError(f"an accumulator can reach {largest}, beyond 32 bits; use fewer bits or inputs")
        carrier: type[np.floating[Any]] = np.float32 if largest < EXACT_FLOAT32 else np.float64
        weight, bias = (torch.from_numpy(array.astype(carrier)) for array in (layer.weight, layer.bias))
        return cls(weight, bias, layer.stride if layer.kind is Conv2d else None)

    def add_up(self, x: torch.Tensor) -> torch.Tensor:
        """Sums (n, outputs, ...) with bias, for whole numbers whose zero point is removed."""
        x = x.to(self.weight.dtype)
        if self.stride is None:
            return torch.nn.functional.linear(x.flatten(1), self.weight, self.bias)
        return torch.nn.functional.conv2d(x, self.weight, self.bias, self.stride)


@dataclass(frozen=True, eq=False)
class CarriedLayer:
    """One layer; it gives whole numbers whose zero point is removed, or its sums where the output is `wide`."""

    sums: Sums
    scale: torch.Tensor  # float32, (outputs, 1, 1) or (1, 1, 1) behind a convolution
    lowest: int  # clips in front of a table, zero point removed
    highest: int
    first: int  # of the table's inputs, zero point removed
    table: torch.Tensor | None
    wide: bool

    @classmethod
    def build(cls, layer: QuantizedLayer, source: ActivationFormat, sums: Sums) -> "CarriedLayer":
        """The layer behind activations of the format `source`."""
        scale = effective_scale(np.asarray(source.scale), layer.weight_scale, np.asarray(layer.output.scale))
        shape = (-1,) if sums.stride is None else (-1, 1, 1)
        output, zero = layer.output.format, layer.output.zero_point
        table = None if layer.tabled is None else torch.from_numpy((layer.table - layer.result.zero_point).astype("f4"))
        return cls(
            sums=sums,
            scale=torch.from_numpy(np.ascontiguousarray(scale)).reshape(shape),
            lowest=layer.lowest - zero,
            highest=output.maximum - zero,
            first=output.minimum - zero,
            table=table,
            wide=layer.output.wide,
        )

    def run(self, x: torch.Tensor) -> torch.Tensor:
        """The next layer's input (n, outputs, ...)."""
        sums = self.sums.add_up(x)
        if self.wide:
            return sums
        rounded = sums.to(torch.float32).mul_(self.scale).round_().clamp_(self.lowest, self.highest)
        return rounded if self.table is None else self.table[(rounded - self.first).to(torch.int64)]


@dataclass(frozen=True, eq=False)
class CarriedNet:
    """A chain of layers under `fp32_rne`, and the branches in front of it."""

    source: ActivationFormat
    layers: tuple[CarriedLayer, ...]
    result: ActivationFormat
    branches: tuple[Branch, ...] = ()

    def run(self, q: Integers) -> Integers:
        """Output integers for input integers (n, *input_shape)."""
        return self.run_steps(self.source.center(q).astype(np.float32))

    def run_steps(self, steps: Floats) -> Integers:
        """The same for integers whose zero point is removed, as floats."""
        with torch.inference_mode():
            x = torch.from_numpy(steps)
            if self.branches:
                x = join(self.branches, x, lambda index, y: self.layers[index].run(y))
            for layer in self.layers[find_stem(self.branches) :]:
                x = layer.run(x)
            found: NDArray[Any] = x.numpy()
        return found.astype(np.int64) + self.result.zero_point
