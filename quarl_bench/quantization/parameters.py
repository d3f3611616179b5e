"""The integer parameters of a quantized net: the schema that the fake-quantized forward, the integer golden model and
every exported artefact share. Scales are float32, as runtimes hold them; whoever derives a number derives it from here.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import ELEMENTWISE, Activation
from quarl_bench.quantization.affine import IntegerFormat, Integers
from quarl_bench.quantization.net import Conv2d, Floats, Layer, Linear, Outputs

SUM_BITS = 32  # of an accumulator, and of an output that is one
BIAS_LIMIT = 1 << 30  # half of int32, so that bias and products together cannot overflow


@dataclass(frozen=True)
class ActivationFormat:
    """Integers, scale and zero point of one activation tensor (always per tensor)."""

    format: IntegerFormat
    scale: np.float32
    zero_point: int

    def quantize(self, x: Floats) -> Integers:
        """clip(rint(x * (1 / scale)) + zero_point) in float32, ties to even, as XNNPACK and torch's fake_quantize do.

        The multiplication by the reciprocal is part of the definition: dividing differs in 4-5 % of near ties.
        Values are clipped first, so that infinities and 1e30 saturate instead of overflowing.
        """
        return self.count_steps(x).astype(np.int64) + self.zero_point

    def count_steps(self, x: Floats) -> Floats:
        """The same integers less the zero point, as the float32 that they are found in."""
        lowest, highest = self.format.minimum - self.zero_point, self.format.maximum - self.zero_point
        steps = torch.from_numpy(x).mul(float(np.float32(1) / self.scale)).round_().clamp_(lowest, highest)
        if len(x) and math.isnan(steps.min()):
            raise QuantizationError("cannot quantize NaN; the observation or the policy is damaged")
        return np.asarray(steps.numpy())

    def center(self, q: Integers) -> Integers:
        """Integers less the zero point."""
        return q - self.zero_point

    @property
    def wide(self) -> bool:
        """Whether these are sums, not yet brought back to few bits."""
        return self.format.bit_width == SUM_BITS

    def dequantize(self, q: Integers) -> Outputs:
        """(q - zero_point) * scale in float32; of wide ones in float64, which keeps unequal ones apart."""
        if self.wide:
            return np.asarray((q - self.zero_point) * np.float64(self.scale))
        return (q - self.zero_point).astype(np.float32) * self.scale


@dataclass(frozen=True)
class PartedFormat(ActivationFormat):
    """The format of an input that branches take apart: its `parts` in formats of their own, of the same integers.

    `scale` and `zero_point` are those of what the parts are joined to, and of every part that passes no layers.
    """

    parts: tuple[ActivationFormat, ...]
    widths: tuple[int, ...]

    @property
    def joined(self) -> ActivationFormat:
        """What the chain behind the branches reads."""
        return ActivationFormat(self.format, self.scale, self.zero_point)

    def quantize(self, x: Floats) -> Integers:
        """The integers of inputs (n, sum of widths), part by part."""
        return np.concatenate([part.quantize(own) for part, own in zip(self.parts, self.split(x), strict=True)], axis=1)

    def count_steps(self, x: Floats) -> Floats:
        """The same, less the zero point of their part, as float32."""
        pairs = zip(self.parts, self.split(x), strict=True)
        return np.concatenate([part.count_steps(own) for part, own in pairs], axis=1)

    def dequantize(self, q: Integers) -> Outputs:
        """The real numbers of integers (n, sum of widths), part by part."""
        pairs = zip(self.parts, self.split(q), strict=True)
        return np.concatenate([part.dequantize(own) for part, own in pairs], axis=1)

    def center(self, q: Integers) -> Integers:
        """Integers (n, sum of widths) less the zero point of their part."""
        return np.concatenate([part.center(own) for part, own in zip(self.parts, self.split(q), strict=True)], axis=1)

    def split(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """The parts of (n, sum of widths)."""
        return np.split(values, np.cumsum(self.widths)[:-1], axis=1)


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """Linear or Conv2d with integer weights, int32 bias of scale input * weight, and its output format.

    `weight` has the layer's shape; `weight_scale` is (1,) per tensor or (outputs,) per channel; zero points of weights
    are 0. A ReLU is fused into the output's lower clip. For every other activation, `output` is the format in front of
    it and `tabled` the format behind it; the map between them is `table`. A `wide` output is the layer's sum itself, of
    scale input * weight and zero point 0.
    """

    kind: type[Linear] | type[Conv2d]
    activation: Activation
    stride: int
    weight: NDArray[np.int8]
    weight_scale: Floats
    weight_format: IntegerFormat
    bias: NDArray[np.int32]
    output: ActivationFormat
    tabled: ActivationFormat | None = None

    @property
    def lowest(self) -> int:
        """Lower clip of the output: the zero point under a ReLU."""
        minimum = self.output.format.minimum
        return max(minimum, self.output.zero_point) if self.activation is Activation.RELU else minimum

    @property
    def result(self) -> ActivationFormat:
        """Format of what the next layer reads."""
        return self.tabled or self.output

    @cached_property
    def table(self) -> Integers:
        """Output integer of the activation for each input integer, from the format's minimum upwards."""
        if self.tabled is None:
            raise QuantizationError(f"no table stands behind {self.activation}")
        return make_table(self.activation, self.output, self.tabled)

    def dequantized(self, input_scale: np.float32) -> Layer:
        """The fp32 layer that these integers stand for."""
        axes = (-1,) + (1,) * (self.weight.ndim - 1)
        weight = self.weight.astype(np.float32) * self.weight_scale.reshape(axes)
        bias = self.bias.astype(np.float32) * (input_scale * self.weight_scale)
        if self.kind is Linear:
            return Linear(weight, bias, self.activation)
        return Conv2d(weight, bias, self.stride, self.activation)


def make_table(activation: Activation, source: ActivationFormat, target: ActivationFormat) -> Integers:
    """clip(rint(f(x) / scale) + zero_point) for every integer of `source`, in float64.

    Equal to every library's table when `has_margin` holds for the two formats.
    """
    steps = np.rint(_count_steps(activation, source, target))
    clipped = np.clip(steps + target.zero_point, target.format.minimum, target.format.maximum)
    return np.asarray(clipped, dtype=np.int64)


def has_margin(activation: Activation, source: ActivationFormat, target: ActivationFormat) -> bool:
    """True when no entry of the table lies so close to a tie that libraries disagree about it."""
    steps = _count_steps(activation, source, target)
    return bool((np.abs(steps - np.floor(steps) - 0.5) >= ELEMENTWISE[activation].margin).all())


def _count_steps(activation: Activation, source: ActivationFormat, target: ActivationFormat) -> NDArray[np.float64]:
    integers = np.arange(source.format.minimum, source.format.maximum + 1)
    values = ELEMENTWISE[activation].exact(source.dequantize(integers).astype(np.float64))
    return np.asarray(values / np.float64(target.scale))
