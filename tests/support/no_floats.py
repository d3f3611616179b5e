"""fp32's requantization without a float unit, as generated C and hardware do it."""

import numpy as np

from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.requantize import Float32s, effective_scale, split_scale


def round_fp32_in_integers(
    acc: Integers, input_scale: Float32s, weight_scale: Float32s, output_scale: Float32s
) -> Integers:
    """The same numbers as `round_fp32` without a float unit: three roundings to nearest even on 64-bit integers.

    The float32 path rounds the accumulator to 24 bits, then the product to 24 bits, then to a whole number; an
    exact product rounded once differs on ties.
    """
    multiplier, shift = split_scale(effective_scale(input_scale, weight_scale, output_scale))
    magnitude, lost = _round_to_24_bits(np.abs(acc))
    product, lost_again = _round_to_24_bits(magnitude * multiplier)
    right = shift - lost - lost_again
    whole = np.where(right > 0, _shift_right_even(product, np.clip(right, 0, 62)), product << np.clip(-right, 0, 38))
    return np.asarray(np.sign(acc) * whole)


def _round_to_24_bits(value: Integers) -> tuple[Integers, Integers]:
    """Nearest even 24-bit number of a non-negative one, and how many bits were shifted out."""
    shift = np.maximum(_bit_length(value) - 24, 0)
    rounded = _shift_right_even(value, shift)
    carry = rounded >> 24  # rounding up may need a 25th bit; its low bit is zero then
    return rounded >> carry, shift + carry


def _bit_length(value: Integers) -> Integers:
    """Exact up to 2^63: float64 may round a number up to the next power of two, so the result is corrected."""
    length = np.frexp(value.astype(np.float64))[1].astype(np.int64)
    return np.where((value > 0) & (value >> np.maximum(length - 1, 0) == 0), length - 1, length)


def _shift_right_even(value: Integers, shift: Integers) -> Integers:
    quotient = value >> shift
    remainder = value - (quotient << shift)
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), np.int64(1))
    up = (remainder > half) | ((remainder == half) & (quotient & 1 == 1))
    return np.asarray(quotient + up)
