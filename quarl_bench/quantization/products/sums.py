"""The exact sums of a quantized layer, by whatever computes them fastest.

A sum of products of small integers is a whole number that float32 holds exactly, in any order of summation, while it
stays below 2^24; float64 holds the others. Where torch multiplies bytes, large layers are sums of 32 bits over bytes,
four products in the time of one.
"""

import itertools
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
import torch

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.net import Conv2d, Linear
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.products.packed import LARGE, Product

EXACT_FLOAT32 = 1 << 24  # whole numbers up to here have no rounding error in float32, in any order of summation
BYTE = 256  # values that it has


class Sums(Protocol):
    """Sums of one layer, exact whatever type carries them."""

    @property
    def images(self) -> bool:
        """Whether the layer is a convolution."""

    def add_up(self, x: torch.Tensor) -> torch.Tensor:
        """Sums (n, outputs, ...) with bias, for whole numbers (n, inputs, ...) whose zero point is removed."""


def build_sums(layer: QuantizedLayer, source: ActivationFormat) -> Sums:
    """For inputs of the format `source`; QuantizationError where a sum can leave 32 bits."""
    weight = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.weight), -1)
    largest = int((weight.sum(1) * _find_widest(source) + np.abs(layer.bias.astype(np.int64))).max())
    if largest >= 1 << 31:
        raise QuantizationError(f"an accumulator can reach {largest}, beyond 32 bits; use fewer bits or inputs")
    large = layer.kind is Conv2d or layer.weight.size >= LARGE
    if large and source.format.levels <= BYTE and multiplies_bytes():
        return ByteSums.build(layer, source, largest)
    return FloatSums.build(layer, largest)


@dataclass(frozen=True, eq=False)
class FloatSums:
    """In the faster float type that holds every partial sum without rounding."""

    weight: torch.Tensor
    bias: torch.Tensor
    stride: int | None  # None: fully connected

    @classmethod
    def build(cls, layer: QuantizedLayer, largest: int) -> "FloatSums":
        """For sums up to `largest`."""
        carrier: type[np.floating[Any]] = np.float32 if largest < EXACT_FLOAT32 else np.float64
        weight, bias = (torch.from_numpy(array.astype(carrier)) for array in (layer.weight, layer.bias))
        return cls(weight, bias, layer.stride if layer.kind is Conv2d else None)

    @property
    def images(self) -> bool:
        """Whether the layer is a convolution."""
        return self.stride is not None

    def add_up(self, x: torch.Tensor) -> torch.Tensor:
        """Sums (n, outputs, ...) with bias, for whole numbers (n, inputs, ...) whose zero point is removed."""
        x = x.to(self.weight.dtype)
        if self.stride is None:
            return self._product.multiply(x)
        return torch.nn.functional.conv2d(x, self.weight, self.bias, self.stride)

    @cached_property
    def _product(self) -> Product:
        return Product(self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class ByteSums:
    """Over bytes in 32 bits, by oneDNN. It hands on float32: inputs are parted where that could not hold their sum."""

    parts: tuple[tuple[slice, torch.Tensor], ...]  # of the inputs (channels), and their packed weights
    bias: torch.Tensor
    offset: int  # which makes a byte, at least 0, of a whole number
    stride: int | None  # None: fully connected
    ones: torch.Tensor  # (outputs,) scales of the weights
    zeros: torch.Tensor  # (outputs,) zero points of the weights

    @classmethod
    def build(cls, layer: QuantizedLayer, source: ActivationFormat, largest: int) -> "ByteSums":
        """For inputs of the format `source` and sums up to `largest`."""
        offset = source.zero_point - source.format.minimum
        stride = layer.stride if layer.kind is Conv2d else None
        ones = torch.ones(len(layer.weight))
        weight, parts = torch.from_numpy(layer.weight), []
        for part in _part(layer, source):
            own = weight[:, part].contiguous()
            packed = (
                torch.ops.onednn.qlinear_prepack(own, None)
                if stride is None
                else torch.ops.onednn.qconv_prepack(own, ones, 1.0, offset, [stride] * 2, [0, 0], [1, 1], 1, None)
            )
            parts.append((part, packed))
        carrier = np.float32 if largest < EXACT_FLOAT32 else np.float64
        bias = torch.from_numpy(layer.bias.astype(carrier))
        return cls(tuple(parts), bias, offset, stride, ones, torch.zeros(len(ones), dtype=torch.int64))

    @property
    def images(self) -> bool:
        """Whether the layer is a convolution."""
        return self.stride is not None

    def add_up(self, x: torch.Tensor) -> torch.Tensor:
        """Sums (n, outputs, ...) with bias, for whole numbers (n, inputs, ...) whose zero point is removed."""
        x = (x if self.images else x.flatten(1)).add(self.offset).to(torch.uint8)
        if self.bias.dtype == torch.float32:
            return self._multiply(x, self.parts[0][1], self.bias)
        sums = self.bias.reshape(-1, 1, 1) if self.images else self.bias
        for part, packed in self.parts:
            sums = sums + self._multiply(x[:, part], packed, None)
        return sums

    def _multiply(self, x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        products = x, 1.0, self.offset, packed, self.ones, self.zeros, bias
        output: tuple[Any, ...] = 1.0, 0, torch.float32, "none", [], ""
        if self.stride is None:
            sums: torch.Tensor = torch.ops.onednn.qlinear_pointwise(*products, *output)
        else:
            sums = torch.ops.onednn.qconv2d_pointwise(*products, [self.stride] * 2, [0, 0], [1, 1], 1, *output)
        return sums


@cache
def multiplies_bytes() -> bool:
    """Whether this torch multiplies bytes on this processor, and is exact where sums of two products leave 16 bits."""
    source = ActivationFormat(IntegerFormat(8), np.float32(1), 3)
    weight, q = np.full((16, 16, 2, 2), 127, np.int8), torch.full((1, 16, 2, 2), 127.0 - source.zero_point)
    weight[::2] = -128
    one = np.ones(1, np.float32)
    for kind, shape in ((Conv2d, weight.shape), (Linear, (16, 64))):
        layer = QuantizedLayer(
            kind, Activation.NONE, 1, weight.reshape(shape), one, source.format, np.zeros(16, np.int32), source
        )
        try:
            found = ByteSums.build(layer, source, 1).add_up(q)
        except (AttributeError, RuntimeError):  # an operator that is not there, or not for this processor
            return False
        if not torch.equal(found, FloatSums.build(layer, 1).add_up(q)):
            return False
    return True


def _part(layer: QuantizedLayer, source: ActivationFormat) -> list[slice]:
    """The inputs of `layer` in as few parts, of equal size, as let float32 hold the sum over each."""
    weight, inputs = np.abs(layer.weight.astype(np.int64)), layer.weight.shape[1]
    for count in range(1, inputs + 1):
        cuts = [inputs * i // count for i in range(count + 1)]
        parts = [slice(*pair) for pair in itertools.pairwise(cuts)]
        rows = [weight[:, part].reshape(len(weight), -1).sum(1).max() for part in parts]
        if max(rows) * _find_widest(source) < EXACT_FLOAT32:
            return parts
    raise QuantizationError(f"sums over one input leave {EXACT_FLOAT32}")


def _find_widest(source: ActivationFormat) -> int:
    return max(abs(source.format.minimum - source.zero_point), abs(source.format.maximum - source.zero_point))
