"""Uniform affine quantization: q = clip(round(x / scale) + zero_point), x' = scale * (q - zero_point).

The two conventions for a range [low, high] of n bits (zero always inside, and always exactly representable):

    endpoint=False   scale = (high - low) / 2^n; the top value is clipped to the last level. QuaRL's weight formula.
    endpoint=True    scale = (high - low) / (levels - 1); low and high are levels. Activations, symmetric weights.

Arithmetic is float64, so that 32 bits of float32 weights are not limited by the arithmetic itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.scheme import Rounding

Integers = NDArray[np.int64]
Doubles = NDArray[np.float64]

SMALLEST_SCALE = float(np.finfo(np.float32).tiny)  # a smaller scale has no float32 reciprocal


@dataclass(frozen=True)
class IntegerFormat:
    """The integers a quantized tensor may hold."""

    bit_width: int
    signed: bool = True
    narrow_range: bool = False

    @property
    def minimum(self) -> int:
        """-2^(n-1) or 0, one more in narrow range."""
        return (-(1 << (self.bit_width - 1)) if self.signed else 0) + self.narrow_range

    @property
    def maximum(self) -> int:
        """2^(n-1) - 1, or 2^n - 1 when unsigned."""
        return (1 << (self.bit_width - self.signed)) - 1

    @property
    def levels(self) -> int:
        """The number of integers of the format: 256 for 8 bits, 255 with a narrow range."""
        return self.maximum - self.minimum + 1


@dataclass(frozen=True, eq=False)
class Affine:
    """A quantizer; scale and zero_point are scalars () or one per channel, shaped to broadcast."""

    scale: Doubles
    zero_point: Integers
    format: IntegerFormat
    rounding: Rounding = Rounding.NEAREST

    def quantize(self, x: NDArray[np.floating[Any]]) -> Integers:
        """Integers in the format; NaN is a QuantizationError, infinities saturate."""
        if np.isnan(x).any():
            raise QuantizationError("cannot quantize NaN; the tensor is damaged or the policy diverged")
        steps = round_steps(np.asarray(x, dtype=np.float64) / self.scale, self.rounding)
        lowest, highest = self.format.minimum - self.zero_point, self.format.maximum - self.zero_point
        # Clipping before the conversion keeps infinities and 1e30 out of the integer cast.
        return np.clip(steps, lowest, highest).astype(np.int64) + self.zero_point

    def dequantize(self, q: Integers) -> Doubles:
        """The real numbers that the integers stand for."""
        return np.asarray(self.scale * (q - self.zero_point))


def round_steps(x: Doubles, rounding: Rounding) -> Doubles:
    """Round to whole numbers by `rounding` (nearest is half to even); the result stays float64."""
    return np.floor(x) if rounding is Rounding.FLOOR else np.rint(x)


def choose_affine(
    low: NDArray[np.floating[Any]] | float,
    high: NDArray[np.floating[Any]] | float,
    format: IntegerFormat,
    *,
    symmetric: bool,
    endpoint: bool,
    rounding: Rounding = Rounding.NEAREST,
) -> Affine:
    """The quantizer of the range [min(low, 0), max(high, 0)], elementwise for arrays of ranges.

    A range of zero width gets scale 1, so that constant zero stays zero. QuantizationError when a bound is not finite.
    """
    low = np.minimum(np.asarray(low, dtype=np.float64), 0.0)
    high = np.maximum(np.asarray(high, dtype=np.float64), 0.0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise QuantizationError(f"cannot quantize the range [{low}, {high}]: its bounds must be finite")
    if symmetric:
        bound = np.maximum(-low, high)
        # A negative bound is a level of its own only in the wide range; the positive top is then clipped.
        scale = bound / (format.maximum if endpoint or format.narrow_range else format.maximum + 1)
        if not format.signed:
            raise QuantizationError("a symmetric range needs a signed format")
        zero_point = np.zeros_like(bound, dtype=np.int64)
        return Affine(_usable(scale), zero_point, format, rounding)
    scale = _usable((high - low) / (format.levels - 1 if endpoint else format.levels))
    offset = round_steps(-low / scale, rounding).astype(np.int64)
    zero_point = np.clip(offset + format.minimum, format.minimum, format.maximum)
    return Affine(scale, zero_point, format, rounding)


def to_power_of_two(scale: NDArray[np.floating[Any]]) -> Doubles:
    """The next power of two that is not smaller."""
    mantissa, exponent = np.frexp(np.asarray(scale, dtype=np.float64))
    return np.asarray(np.ldexp(1.0, exponent - (mantissa == 0.5)))


def _usable(scale: NDArray[np.floating[Any]]) -> Doubles:
    scale = np.asarray(scale, dtype=np.float64)
    return np.where(scale == 0.0, 1.0, np.maximum(scale, SMALLEST_SCALE))
