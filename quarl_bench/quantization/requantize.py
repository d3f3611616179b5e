"""From a wide accumulator to the next layer's integers, in the exact arithmetic of named kernels.

Every function takes accumulators (int64 that fit int32, bias included) and three float32 scales, broadcastable:
input, weight, output. It returns round(accumulator * input * weight / output) before zero point and clipping.
The rules that round once differ only on or next to a tie: test them there, random accumulators do not tell them apart.
"""

from collections.abc import Callable
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import Integers

Float32s = NDArray[np.float32]
FEW = 15  # thresholds, of 4 bits, that are compared with all channels at once; more are searched in each
LARGEST_SHIFT = 62  # of int64; shifts a 32-bit accumulator to 0 as any larger one would
Rule = Callable[[Integers, Float32s, Float32s, Float32s], Integers]


class Requantization(StrEnum):
    """Whose arithmetic turns int32 sums into activations."""

    FP32_RNE = "fp32_rne"  # LiteRT's XNNPACK, onnxruntime's QGemm and QLinearConv
    HALF_AWAY = "half_away"  # LiteRT's reference kernel for fully connected layers
    DOUBLE_HALF_UP = "double_half_up"  # LiteRT's built-in optimized kernel, tflite-runtime
    GEMMLOWP = "gemmlowp"  # LiteRT's reference and built-in kernels for convolutions
    THRESHOLDS = "thresholds"  # stored integer thresholds that reproduce fp32_rne: FPGA and microcontrollers


def effective_scale(input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s) -> Float32s:
    """(input * weight) / output, in this order and in float32: the other order is wrong once in a million."""
    return np.asarray(np.float32(input_scale) * np.float32(weight_scale) / np.float32(output_scale), dtype=np.float32)


def round_fp32(acc: Integers, input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s) -> Integers:
    """Float32 multiplication, then to nearest even."""
    scale = effective_scale(input_scale, weight_scale, output_scale)
    return np.asarray(np.rint(acc.astype(np.float32) * scale), dtype=np.int64)


def split_scale(scale: Float32s) -> tuple[Integers, Integers]:
    """(multiplier of 24 bits, right shift): scale = multiplier * 2^-shift, exactly. The shift may be negative."""
    mantissa, exponent = np.frexp(scale)
    return np.asarray(np.ldexp(mantissa, 24)).astype(np.int64), 24 - np.asarray(exponent).astype(np.int64)


def round_half_away(acc: Integers, input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s) -> Integers:
    """Float64 multiplication, ties away from zero."""
    product = acc * (np.float64(input_scale) * np.float64(weight_scale) / np.float64(output_scale))
    return np.asarray(np.sign(product) * np.floor(np.abs(product) + 0.5)).astype(np.int64)


def round_double_half_up(
    acc: Integers, input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s
) -> Integers:
    """31-bit fixed-point multiplier, then a right shift; both round half up."""
    multiplier, right = _fixed_point(input_scale, weight_scale, output_scale)
    high = (_shift_left(acc, right) * multiplier + (1 << 30)) >> 31
    right = np.maximum(right, 0)
    return np.where(right > 0, (high + (np.int64(1) << np.maximum(right - 1, 0))) >> right, high)


def round_gemmlowp(acc: Integers, input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s) -> Integers:
    """Saturating rounding doubling high multiplication, then a rounding right shift, ties away from zero."""
    multiplier, right = _fixed_point(input_scale, weight_scale, output_scale)
    product = _shift_left(acc, right) * multiplier
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.sign(nudged) * (np.abs(nudged) >> 31)  # division by 2^31 that truncates towards zero
    right = np.maximum(right, 0)
    mask = (np.int64(1) << right) - 1
    remainder, threshold = high & mask, (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + (remainder > threshold))


RULES: dict[Requantization, Rule] = {
    Requantization.FP32_RNE: round_fp32,
    Requantization.HALF_AWAY: round_half_away,
    Requantization.DOUBLE_HALF_UP: round_double_half_up,
    Requantization.GEMMLOWP: round_gemmlowp,
}


def find_thresholds(
    input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s, zero_point: int, low: int, high: int
) -> Integers:
    """Smallest accumulator that reaches each output level above `low`: (channels, high - low), by bisection.

    Output = low + number of thresholds <= accumulator, which equals `round_fp32` plus zero point, clipped, for every
    32-bit accumulator, because that map never decreases. A level beyond reach gets 2^31.
    """
    weight_scale = np.float32(weight_scale).reshape(-1, 1)
    levels = np.arange(low + 1, high + 1, dtype=np.int64) - zero_point
    shape = (len(weight_scale), len(levels))
    below = np.full(shape, -(1 << 31) - 1, dtype=np.int64)  # invariant: below fails, above reaches
    above = np.full(shape, 1 << 31, dtype=np.int64)
    for _ in range(33):
        middle = (below + above) >> 1
        reaches = round_fp32(middle, input_scale, weight_scale, output_scale) >= levels
        above, below = np.where(reaches, middle, above), np.where(reaches, below, middle)
    return above


def count_thresholds(acc: Integers, thresholds: Integers, low: int) -> Integers:
    """Apply `find_thresholds` to accumulators (n, channels, ...); thresholds has one row, or one per channel."""
    if thresholds.shape[1] <= FEW:
        reached = np.full(acc.shape, low, dtype=np.int64)
        for level in thresholds.T:
            reached += acc >= level.reshape(-1, *(1,) * (acc.ndim - 2))
        return reached
    out = np.empty(acc.shape, dtype=np.int64)
    for channel in range(acc.shape[1]):
        row = thresholds[channel if len(thresholds) > 1 else 0]
        out[:, channel] = low + np.searchsorted(row, acc[:, channel], side="right")
    return out


def _fixed_point(input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s) -> tuple[Integers, Integers]:
    """TFLite's multiplier in [2^30, 2^31) and right shift of input * weight / output, in float64."""
    scale = np.asarray(np.float64(input_scale) * np.float64(weight_scale) / np.float64(output_scale))
    if not ((scale > 0) & np.isfinite(scale)).all():
        raise QuantizationError(f"requantization scale {scale} must be positive and finite")
    mantissa, exponent = np.frexp(scale)
    multiplier = np.floor(mantissa * (1 << 31) + 0.5).astype(np.int64)
    carried = multiplier == 1 << 31
    right = -(exponent.astype(np.int64) + carried)
    return np.where(carried, multiplier >> 1, multiplier), np.minimum(right, LARGEST_SHIFT)


def _shift_left(acc: Integers, right: Integers) -> Integers:
    """A negative right shift is a left shift before the multiplication."""
    return np.asarray(acc << np.maximum(-right, 0))
