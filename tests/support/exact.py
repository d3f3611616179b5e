"""Requantization once more, one number at a time, in rational arithmetic that rounds only where a kernel does."""

from fractions import Fraction
from math import floor


def to_float(x: Fraction, digits: int) -> Fraction:
    """Nearest number of `digits` significant bits, ties to even: 24 is float32, 53 is float64 (normal numbers)."""
    if x == 0:
        return x
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    if abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - digits + 1)
    return round(x / unit) * unit


def fp32_rne(acc: int, source: Fraction, weight: Fraction, target: Fraction) -> int:
    """Float32 at every step, then to nearest even."""
    scale = to_float(to_float(source * weight, 24) / target, 24)
    return round(to_float(to_float(Fraction(acc), 24) * scale, 24))


def half_away(acc: int, source: Fraction, weight: Fraction, target: Fraction) -> int:
    """Float64 at every step, the addition of a half included."""
    scale = to_float(to_float(source * weight, 53) / target, 53)
    product = to_float(acc * scale, 53)
    return (-1 if product < 0 else 1) * floor(to_float(abs(product) + Fraction(1, 2), 53))


def double_half_up(acc: int, source: Fraction, weight: Fraction, target: Fraction) -> int:
    """31 bits of multiplier, round half up, then shift, round half up."""
    multiplier, right = _fixed_point(source, weight, target)
    high = ((acc << max(-right, 0)) * multiplier + (1 << 30)) >> 31
    return (high + (1 << (right - 1))) >> right if right > 0 else high


def gemmlowp(acc: int, source: Fraction, weight: Fraction, target: Fraction) -> int:
    """SaturatingRoundingDoublingHighMul and RoundingDivideByPOT as in gemmlowp's fixedpoint.h."""
    multiplier, right = _fixed_point(source, weight, target)
    product = (acc << max(-right, 0)) * multiplier
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    high = abs(nudged) // (1 << 31) * (-1 if nudged < 0 else 1)
    if right <= 0:
        return high
    whole, remainder = divmod(high, 1 << right)
    return whole + (remainder > (((1 << right) - 1) >> 1) + (high < 0))


def _fixed_point(source: Fraction, weight: Fraction, target: Fraction) -> tuple[int, int]:
    scale, right = to_float(source * weight / target, 53), 0
    while scale >= 1:
        scale, right = scale / 2, right - 1
    while scale < Fraction(1, 2):
        scale, right = scale * 2, right + 1
    multiplier = floor(scale * (1 << 31) + Fraction(1, 2))
    return (multiplier >> 1, right - 1) if multiplier == 1 << 31 else (multiplier, right)
