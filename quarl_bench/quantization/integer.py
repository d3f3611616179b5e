"""The golden model: a net that runs on integers only behind its input quantization.

NumPy throughout; sums are exact whatever type carries them, and the requantization rule is a named one. Every exported
artefact is compared with this, layer by layer.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.net import Conv2d, Floats, Outputs
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.requantize import RULES, Requantization, count_thresholds, find_thresholds

EXACT_FLOAT32 = 1 << 24  # whole numbers up to here have no rounding error in float32, in any order of summation


@dataclass(frozen=True, eq=False)
class IntegerNet:
    """A QuantizedNet's integers with a requantization rule."""

    input_shape: tuple[int, ...]
    input: ActivationFormat
    layers: tuple[QuantizedLayer, ...]
    requantization: Requantization = Requantization.FP32_RNE

    @classmethod
    def from_quantized(
        cls, net: QuantizedNet, requantization: Requantization = Requantization.FP32_RNE
    ) -> "IntegerNet":
        """The net that computes with the integers of `net` and no floats between its layers."""
        return cls(net.input_shape, net.input, net.layers, requantization)

    @property
    def outputs(self) -> int:
        """Values that the net gives for one observation."""
        return len(self.layers[-1].bias)

    @property
    def output(self) -> ActivationFormat:
        """Bits, scale and zero_point of the integers that the last layer gives."""
        return self.layers[-1].result

    def with_requantization(self, requantization: Requantization) -> "IntegerNet":
        """The same integers under another rule."""
        return replace(self, requantization=requantization)

    def forward(self, x: Floats) -> Outputs:
        """Outputs (n, outputs), dequantized, for float inputs (n, *input_shape)."""
        return self.output.dequantize(self.run(self.input.quantize(x)))

    def run(self, q: Integers) -> Integers:
        """Output integers for input integers (n, *input_shape)."""
        for index in range(len(self.layers)):
            q = self.run_layer(index, q)
        return q

    def trace(self, q: Integers) -> tuple[Integers, ...]:
        """Integers behind every layer, for finding where an artefact first diverges."""
        out = []
        for index in range(len(self.layers)):
            q = self.run_layer(index, q)
            out.append(q)
        return tuple(out)

    def run_layer(self, index: int, q: Integers) -> Integers:
        """One layer: exact sums, and unless they are the output, requantization, clip, and the activation's table."""
        layer, source = self.layers[index], self._sources[index]
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
        return self._kernels[index].accumulate(q - self._sources[index].zero_point)

    @cached_property
    def _sources(self) -> tuple[ActivationFormat, ...]:
        return (self.input, *(layer.result for layer in self.layers[:-1]))

    @cached_property
    def _kernels(self) -> tuple["_Kernel", ...]:
        pairs = zip(self.layers, self._sources, strict=True)
        return tuple(_Kernel.build(layer, source) for layer, source in pairs)

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
            for layer, source in zip(self.layers, self._sources, strict=True)
            if not layer.output.wide  # the last one's
        )


@dataclass(frozen=True, eq=False)
class _Kernel:
    """Exact integer sums carried by the fastest float type that holds every partial sum without rounding."""

    weight: NDArray[np.floating[Any]]
    bias: NDArray[np.floating[Any]]
    stride: int | None  # None: fully connected

    @classmethod
    def build(cls, layer: QuantizedLayer, source: ActivationFormat) -> "_Kernel":
        widest = max(abs(source.format.minimum - source.zero_point), abs(source.format.maximum - source.zero_point))
        rows = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.weight), -1).sum(1)
        largest = int((rows * widest + np.abs(layer.bias.astype(np.int64))).max())
        if largest >= 1 << 31:
            raise QuantizationError(f"an accumulator can reach {largest}, beyond 32 bits; use fewer bits or inputs")
        carrier: type[np.floating[Any]] = np.float32 if largest < EXACT_FLOAT32 else np.float64
        stride = layer.stride if layer.kind is Conv2d else None
        weight: NDArray[np.floating[Any]] = layer.weight.astype(carrier)
        return cls(weight if stride else np.ascontiguousarray(weight.T), layer.bias.astype(carrier), stride)

    def accumulate(self, q: Integers) -> Integers:
        """Sums (n, outputs, ...) with bias; `q` has its zero point removed."""
        x = q.astype(self.weight.dtype)
        if self.stride is None:
            return np.asarray(x.reshape(len(x), -1) @ self.weight + self.bias).astype(np.int64)
        with torch.inference_mode():
            weight, bias = torch.from_numpy(self.weight), torch.from_numpy(self.bias)
            sums = torch.nn.functional.conv2d(torch.from_numpy(x), weight, bias, self.stride)
        return np.asarray(sums.numpy()).astype(np.int64)
