"""Requantization rules against exact rational arithmetic, on ties and next to them, where alone they differ."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.requantize import (
    RULES,
    Requantization,
    count_thresholds,
    effective_scale,
    find_thresholds,
    round_fp32,
)
from tests.support import exact
from tests.support.no_floats import round_fp32_in_integers
from tests.support.strategies import SEEDS

Scalar = Callable[[int, Fraction, Fraction, Fraction], int]
Cases = tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]

EXACT: dict[Requantization, Scalar] = {
    Requantization.FP32_RNE: exact.fp32_rne,
    Requantization.HALF_AWAY: exact.half_away,
    Requantization.DOUBLE_HALF_UP: exact.double_half_up,
    Requantization.GEMMLOWP: exact.gemmlowp,
}
LIMIT = 2**31


def exact_ties(count: int, seed: int) -> Cases:
    """Power-of-two scales 2^-1 .. 2^-20 and accumulators (2k + 1) / 2 steps from zero."""
    rng = np.random.default_rng(seed)
    right = rng.integers(1, 21, count)
    widest = np.minimum(np.where(rng.random(count) < 0.5, 300, LIMIT), (LIMIT >> right) - 1)
    acc = (2 * rng.integers(-widest, widest) + 1) << (right - 1)
    source, target = rng.integers(-6, 3, count), rng.integers(-6, 3, count)
    weight = target - right - source
    return acc, *(np.exp2(power).astype(np.float32) for power in (source, weight, target))


def near_ties(count: int, seed: int) -> Cases:
    """Any scales, and the accumulators next to a tie of the product, or one further."""
    rng = np.random.default_rng(seed)
    source, target = (np.exp2(rng.uniform(-8, 2, count)).astype(np.float32) for _ in range(2))
    weight = (np.exp2(rng.uniform(-20, -0.5, count)) * target / source).astype(np.float32)
    scale = effective_scale(source, weight, target).astype(np.float64)
    widest = np.minimum(np.where(rng.random(count) < 0.5, 300, LIMIT), LIMIT * scale - 2)
    steps = np.floor(rng.uniform(-1, 1, count) * widest) + 0.5
    acc = np.rint(steps / scale).astype(np.int64) + rng.integers(-1, 2, count)
    return np.clip(acc, -LIMIT, LIMIT - 1), source, weight, target


def anywhere(count: int, seed: int) -> Cases:
    """Random accumulators of the whole 32 bits."""
    _, source, weight, target = near_ties(count, seed)
    return np.random.default_rng(seed).integers(-LIMIT, LIMIT, count), source, weight, target


KINDS = {"exact_ties": exact_ties, "near_ties": near_ties, "anywhere": anywhere}


def adversarial(count: int, seed: int) -> Cases:
    """Half exact ties, half next to one."""
    halves = zip(exact_ties(count // 2, seed), near_ties(count // 2, seed + 1), strict=True)
    acc, source, weight, target = (np.concatenate(pair) for pair in halves)
    return acc, source, weight, target


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", EXACT, ids=str)
def test_rules_equal_exact_arithmetic(rule: Requantization, kind: str) -> None:
    cases = KINDS[kind](4000, seed=7)
    found = RULES[rule](*cases)
    columns = (cases[0].tolist(), *(map(Fraction, scales.tolist()) for scales in cases[1:]))
    expected = [EXACT[rule](*case) for case in zip(*columns, strict=True)]
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


def test_every_rule_but_thresholds_has_an_exact_twin() -> None:
    assert set(RULES) == set(EXACT) == set(Requantization) - {Requantization.THRESHOLDS}


def test_fp32_without_a_float_unit() -> None:
    """1.2 million accumulators on or next to a tie; a single rounding of the exact product would fail on many."""
    cases = adversarial(1_200_000, seed=1)
    expected = round_fp32(*cases)
    np.testing.assert_array_equal(round_fp32_in_integers(*cases), expected)
    acc, *scales = (column[-100_000:] for column in cases)
    exact_product = acc.astype(np.longdouble) * effective_scale(*scales)  # 31 + 24 bits fit 64
    assert np.count_nonzero(np.rint(exact_product).astype(np.int64) != expected[-100_000:]) > 1000


@given(
    st.integers(-LIMIT, LIMIT - 1) | st.sampled_from([-LIMIT, -1, 0, 1, 2**24, 2**24 + 1, 2**25 + 2, LIMIT - 1]),
    st.floats(2.0**-60, 2.0**7, width=32),
)
def test_fp32_without_a_float_unit_at_any_scale(acc: int, scale: float) -> None:
    arguments = np.array([acc]), np.float32(1), np.float32([scale]), np.float32(1)
    np.testing.assert_array_equal(round_fp32_in_integers(*arguments), round_fp32(*arguments))


#              scale 1/4:    -2.5 -1.5 -0.5  -1/4  1/4  0.5  1.5  2.5
@pytest.mark.parametrize(
    "rule, expected",
    [
        (Requantization.FP32_RNE, [-2, -2, 0, 0, 0, 0, 2, 2]),
        (Requantization.HALF_AWAY, [-3, -2, -1, 0, 0, 1, 2, 3]),
        (Requantization.DOUBLE_HALF_UP, [-2, -1, 0, 0, 1, 1, 2, 3]),  # 1/4 is rounded to 1/2, and that to 1
        (Requantization.GEMMLOWP, [-3, -2, -1, 0, 1, 1, 2, 3]),
    ],
    ids=str,
)
def test_no_two_rules_agree_on_ties(rule: Requantization, expected: list[int]) -> None:
    acc = np.array([-10, -6, -2, -1, 1, 2, 6, 10])
    assert RULES[rule](acc, np.float32(0.5), np.float32(0.5), np.float32(1)).tolist() == expected


def test_random_accumulators_do_not_tell_roundings_apart() -> None:
    """Why this file is about ties: of 200,000 random accumulators of 8-bit outputs hardly one shows a wrong rule."""
    _, *scales = near_ties(200_000, seed=3)
    steps = np.random.default_rng(4).uniform(-128, 127, 200_000)
    acc = np.rint(steps / effective_scale(*scales)).astype(np.int64)
    common = np.abs(acc) > 2**12  # below, ties are not rare
    rne, away = (RULES[rule](acc, *scales)[common] for rule in (Requantization.FP32_RNE, Requantization.HALF_AWAY))
    assert common.sum() > 50_000
    assert np.count_nonzero(rne != away) < 20
    ties = exact_ties(20_000, seed=3)
    first, *others = (rule(*ties) for rule in RULES.values())
    assert all(np.count_nonzero(first != other) > 4000 for other in others)


def test_the_other_order_of_multiplication_is_wrong() -> None:
    acc, source, weight, target = near_ties(200_000, seed=5)
    other = np.rint(acc.astype(np.float32) * (source / target * weight)).astype(np.int64)
    assert np.count_nonzero(other != round_fp32(acc, source, weight, target)) > 2000


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("exponent", [-31, -45, -62, -63, -64, -80, -120])
def test_tiny_scales_round_to_zero(rule: Requantization, exponent: int) -> None:
    """A channel with weights that are all but zero beside a channel of ordinary ones."""
    acc = np.array([-(2**29), -1, 0, 1, 2**29])
    scale = np.exp2(np.float64([exponent])).astype(np.float32)
    assert not RULES[rule](acc, np.float32(1), scale, np.float32(1)).any()


@pytest.mark.parametrize("rule", [Requantization.DOUBLE_HALF_UP, Requantization.GEMMLOWP], ids=str)
@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan])
def test_a_fixed_point_multiplier_needs_a_positive_scale(rule: Requantization, scale: float) -> None:
    with pytest.raises(QuantizationError, match="positive and finite"):
        RULES[rule](np.array([1]), np.float32(1), np.float32(scale), np.float32(1))


@given(SEEDS, st.integers(2, 8), st.booleans())
def test_thresholds_equal_fp32_wherever_the_output_changes(seed: int, bits: int, signed: bool) -> None:
    """Per channel, at every threshold and one beside it, on ties, and at both ends of 32 bits."""
    rng = np.random.default_rng(seed)
    low = -(2 ** (bits - 1)) if signed else 0
    high = low + 2**bits - 1
    zero_point = int(rng.integers(low, high + 1))
    source, target = np.exp2(rng.uniform(-8, 2, 2)).astype(np.float32)
    weight = np.exp2(rng.uniform(-20, 5, 3)).astype(np.float32)
    if seed % 2:
        source, target, weight = (np.exp2(np.rint(np.log2(scale))) for scale in (source, target, weight))
    table = find_thresholds(source, weight, target, zero_point, low, high)
    assert table.shape == (3, high - low)
    assert (np.diff(table, axis=1) >= 0).all()
    for channel in range(3):
        scale = float(effective_scale(source, weight[channel], target))
        ties = np.rint((np.arange(low, high + 1) - zero_point + 0.5) / scale)
        near = np.concatenate([table[channel] + d for d in (-1, 0, 1)] + [ties + d for d in (-1, 0, 1)])
        near = np.append(near, [-LIMIT, 0, LIMIT - 1])
        acc = np.zeros((len(near), 3), np.int64)
        acc[:, channel] = np.clip(near, -LIMIT, LIMIT - 1)
        expected = np.clip(round_fp32(acc, source, weight, target) + zero_point, low, high)
        np.testing.assert_array_equal(count_thresholds(acc, table, low), expected)


@given(SEEDS, st.integers(1, 20), st.sampled_from([1, 3]))
def test_images_count_thresholds_channel_by_channel(seed: int, levels: int, rows: int) -> None:
    rng = np.random.default_rng(seed)
    acc, table = rng.integers(-9, 9, (2, 3, 4, 5)), np.sort(rng.integers(-9, 9, (rows, levels)), axis=1)
    expected = (acc[..., None] >= table.reshape(1, rows, 1, 1, levels)).sum(-1) - 7
    np.testing.assert_array_equal(count_thresholds(acc, table, -7), expected)


def test_a_level_beyond_32_bits_has_no_accumulator() -> None:
    """At scale 2^-30 the tie 0.5 goes to 0 and 1.5 to 2, and float32 rounds accumulators to multiples of 64 and 128."""
    table = find_thresholds(np.float32(1), np.float32(2.0**-30), np.float32(1), 0, -8, 7)
    assert table[0, 8:].tolist() == [2**29 + 33, 3 * 2**29 - 64, *[LIMIT] * 5]
