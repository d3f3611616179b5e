"""Integers carried by floats: the golden model's numbers at about the speed of an fp32 net.

Sums are exact whatever adds them up. Between layers whole numbers stay floats, and requantization is `fp32_rne`
itself: a multiplication in float32, then to nearest even.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.branches import Branch, find_stem, join
from quarl_bench.quantization.net import Floats
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.products.sums import Sums
from quarl_bench.quantization.requantize import effective_scale


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
        shape = (-1, 1, 1) if sums.images else (-1,)
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
        if self.table is None:
            return rounded
        places = (rounded - self.first).to(torch.int64).flatten()
        return self.table.index_select(0, places).view(rounded.shape)  # a quarter of the time that [places] takes


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
