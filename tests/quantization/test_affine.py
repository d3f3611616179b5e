"""Uniform affine quantization: error bounds, levels, zero, monotony, and QuaRL's formula by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import SMALLEST_SCALE, Affine, IntegerFormat, choose_affine, to_power_of_two
from quarl_bench.quantization.scheme import Rounding

# The only slack in the bounds below: float64 rounds the division, the product and the scale itself, each by at most
# 2^-53 of a number no larger than the value (in steps: than the range), so four units of that size are plenty.
ROUNDING = 4 * 2.0**-52
LARGEST = 1e300  # float64 ranges beyond this have a width that is not finite

Values = NDArray[np.floating[Any]]


def _elements(dtype: type) -> st.SearchStrategy[float]:
    if dtype is np.float32:
        return st.floats(width=32, allow_nan=False, allow_infinity=False)
    return st.floats(-LARGEST, LARGEST, allow_nan=False)


@st.composite
def tensors(draw: st.DrawFn) -> Values:
    """Any finite values; then maybe all of one sign, constant, or empty."""
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    spread = draw(
        st.sampled_from([_elements(dtype), st.floats(-4, 4, width=32), st.floats(-(2.0**-126), 2.0**-126, width=32)])
    )
    values = draw(arrays.arrays(dtype, st.integers(0, 20), elements=spread))
    kind = draw(st.sampled_from(["any", "positive", "negative", "constant"]))
    if kind == "constant":
        return np.full_like(values, values[0] if len(values) else 0)
    return {"any": values, "positive": np.abs(values), "negative": -np.abs(values)}[kind]


def _quantizer(values: Values, bits: int, *, symmetric: bool = False, narrow: bool = False, **options: Any) -> Affine:
    form = IntegerFormat(bits, narrow_range=narrow)
    low, high = values.min(initial=0), values.max(initial=0)
    return choose_affine(low, high, form, symmetric=symmetric, **{"endpoint": False, **options})


quantizers = {
    "bits": st.integers(2, 32),
    "symmetric": st.booleans(),
    "narrow": st.booleans(),
    "endpoint": st.booleans(),
}


@given(values=tensors(), **quantizers)
def test_nearest_is_at_most_half_a_step_off(values: Values, **options: Any) -> None:
    affine = _quantizer(values, **options)
    values = values.astype(np.float64)
    restored = affine.dequantize(affine.quantize(values))
    bottom, top = (affine.dequantize(np.int64(q)) for q in (affine.format.minimum, affine.format.maximum))
    slack = ROUNDING * (np.abs(values) + affine.scale)
    inside = (values >= bottom - affine.scale / 2) & (values <= top + affine.scale / 2)
    assert (np.abs(values - restored) <= affine.scale / 2 + slack)[inside].all()
    assert (restored[values > top + affine.scale / 2] == top).all()
    assert (restored[values < bottom - affine.scale / 2] == bottom).all()


@given(values=tensors(), bits=st.integers(2, 32))
def test_floor_is_less_than_a_step_below(values: Values, bits: int) -> None:
    affine = _quantizer(values, bits, rounding=Rounding.FLOOR)
    values = values.astype(np.float64)  # NumPy 1 compares a float32 array with one number in float32
    restored = affine.dequantize(affine.quantize(values))
    bottom, top = (affine.dequantize(np.int64(q)) for q in (affine.format.minimum, affine.format.maximum))
    slack = ROUNDING * (np.abs(values) + affine.scale)
    below = (values - restored)[(values >= bottom) & (values < top + affine.scale)]
    slack = slack[(values >= bottom) & (values < top + affine.scale)]
    assert ((below >= -slack) & (below < affine.scale + slack)).all()


@given(values=tensors(), **quantizers)
def test_the_whole_range_is_covered(values: Values, **options: Any) -> None:
    """With both ends as levels nothing is further than half a step; else the clipped end costs at most one more."""
    affine = _quantizer(values, **options)
    values = values.astype(np.float64)
    worst = 0.5 if options["endpoint"] or (options["symmetric"] and options["narrow"]) else 1.5
    error = np.abs(values - affine.dequantize(affine.quantize(values)))
    assert (error <= worst * affine.scale + ROUNDING * (np.abs(values) + affine.scale)).all()


@given(values=tensors(), rounding=st.sampled_from(Rounding), **quantizers)
def test_zero_is_exact_order_is_kept_and_levels_are_counted(values: Values, **options: Any) -> None:
    affine = _quantizer(values, **options)
    form = affine.format
    assert affine.dequantize(affine.quantize(np.zeros(1))) == 0.0
    assert form.minimum <= affine.zero_point <= form.maximum
    q = affine.quantize(np.sort(values))
    assert q.dtype == np.int64
    assert (np.diff(q) >= 0).all()
    assert ((q >= form.minimum) & (q <= form.maximum)).all()
    assert form.levels <= 2**form.bit_width


@given(seed=st.integers(0, 999), bits=st.integers(2, 6), rounding=st.sampled_from(Rounding))
def test_every_level_is_used_and_no_more(seed: int, bits: int, rounding: Rounding) -> None:
    values = np.random.default_rng(seed).uniform(-3, 2, 4000)
    affine = _quantizer(values, bits, rounding=rounding)
    assert len(np.unique(affine.quantize(values))) == 2**bits


@given(tensors(), st.integers(2, 32))
def test_narrow_symmetric_is_odd(values: Values, bits: int) -> None:
    affine = _quantizer(values, bits, symmetric=True, narrow=True)
    assert affine.zero_point == 0
    np.testing.assert_array_equal(affine.quantize(-values), -affine.quantize(values))


@pytest.mark.parametrize(
    "bits, weights, delta, integers, restored",
    [
        # delta = (1 + 1) / 256, z = floor(1 / delta) = 128: floor(w / delta) + z, the last one clipped from 256
        (
            8,
            [-1.0, -0.5, -0.001, 0.003, 0.25, 0.998, 1.0],
            2**-7,
            [0, 64, 127, 128, 160, 255, 255],
            [-1.0, -0.5, -0.0078125, 0.0, 0.25, 0.9921875, 0.9921875],
        ),
        # delta = (0.375 + 0.625) / 8, z = 3
        (3, [-0.375, -0.2, -0.01, 0.1, 0.6, 0.625], 0.125, [0, 1, 2, 3, 7, 7], [-0.375, -0.25, -0.125, 0.0, 0.5, 0.5]),
        # delta = (0.3125 + 0.6875) / 8, z = floor(2.5) = 2: the lowest value is clipped from -1
        (3, [-0.3125, -0.13, 0.0, 0.6875], 0.125, [0, 0, 2, 7], [-0.25, -0.25, 0.0, 0.625]),
        # all positive: low is 0, so z = 0
        (2, [0.5, 1.0, 1.9, 4.0], 1.0, [0, 1, 1, 3], [0.0, 1.0, 1.0, 3.0]),
        # all negative: z = floor(4 / 1) = 4 does not fit, is clipped to 3, and everything below -3 with it
        (2, [-4.0, -3.0, -0.5], 1.0, [0, 0, 2], [-3.0, -3.0, -1.0]),
    ],
    ids=["8bit", "3bit", "zero_between_levels", "positive", "negative"],
)
def test_the_printed_formula_by_hand(
    bits: int, weights: list[float], delta: float, integers: list[int], restored: list[float]
) -> None:
    """Floor(w / delta) + z with delta = (|min(w, 0)| + |max(w, 0)|) / 2^n, z = floor(-min(w, 0) / delta), clipped."""
    values = np.array(weights)
    form = IntegerFormat(bits, signed=False)
    affine = choose_affine(values.min(), values.max(), form, symmetric=False, endpoint=False, rounding=Rounding.FLOOR)
    assert affine.scale == delta
    assert affine.quantize(values).tolist() == integers
    assert affine.dequantize(affine.quantize(values)).tolist() == restored
    signed = _quantizer(values, bits, rounding=Rounding.FLOOR)
    assert (signed.quantize(values) + 2 ** (bits - 1)).tolist() == integers
    assert signed.dequantize(signed.quantize(values)).tolist() == restored


@pytest.mark.parametrize(
    "bits, signed, narrow, low, high",
    [
        (2, True, False, -2, 1),
        (2, True, True, -1, 1),  # ternary
        (2, False, False, 0, 3),
        (8, True, False, -128, 127),
        (8, True, True, -127, 127),
        (8, False, False, 0, 255),
        (8, False, True, 1, 255),
        (32, True, False, -(2**31), 2**31 - 1),
    ],
)
def test_formats(bits: int, signed: bool, narrow: bool, low: int, high: int) -> None:
    form = IntegerFormat(bits, signed, narrow)
    assert (form.minimum, form.maximum, form.levels) == (low, high, high - low + 1)


def test_the_top_is_clipped_unless_both_ends_are_levels() -> None:
    values = np.array([0.0, 0.75, 1.0])
    clipped, kept = _quantizer(values, 2), _quantizer(values, 2, endpoint=True)
    assert clipped.dequantize(clipped.quantize(values)).tolist() == [0.0, 0.75, 0.75]
    assert kept.dequantize(kept.quantize(values)).tolist() == [0.0, 2 / 3, 1.0]


def test_ties_go_to_even() -> None:
    affine = Affine(np.float64(1), np.int64(0), IntegerFormat(8))
    assert affine.quantize(np.array([0.5, 1.5, 2.5, -0.5, -1.5])).tolist() == [0, 2, 2, 0, -2]


@pytest.mark.parametrize("rounding", Rounding)
def test_nan_is_refused_and_infinity_saturates(rounding: Rounding) -> None:
    affine = _quantizer(np.array([-1.0, 1.0]), 8, rounding=rounding)
    assert affine.quantize(np.array([-np.inf, -1e30, 1e30, np.inf])).tolist() == [-128, -128, 127, 127]
    with pytest.raises(QuantizationError, match="NaN"):
        affine.quantize(np.array([0.0, np.nan]))


@pytest.mark.parametrize("bounds", [(np.nan, 1), (0, np.nan), (-np.inf, 1), (0, np.inf)], ids=str)
def test_a_range_must_be_finite(bounds: tuple[float, float]) -> None:
    with pytest.raises(QuantizationError, match="must be finite"):
        choose_affine(*bounds, IntegerFormat(8), symmetric=False, endpoint=True)


def test_a_symmetric_range_needs_a_signed_format() -> None:
    with pytest.raises(QuantizationError, match="signed"):
        choose_affine(-1.0, 1.0, IntegerFormat(8, signed=False), symmetric=True, endpoint=True)


def test_an_empty_range_keeps_zero() -> None:
    affine = _quantizer(np.zeros(3), 8)
    assert affine.scale == 1.0
    assert affine.dequantize(affine.quantize(np.zeros(3))).tolist() == [0.0, 0.0, 0.0]


def test_ranges_of_channels_are_independent() -> None:
    low, high = np.array([[-1.0], [-8.0]]), np.array([[3.0], [0.0]])
    both = choose_affine(low, high, IntegerFormat(4), symmetric=False, endpoint=False)
    values = np.random.default_rng(0).uniform(low, high, (2, 50))
    for row in range(2):
        one = choose_affine(low[row], high[row], IntegerFormat(4), symmetric=False, endpoint=False)
        np.testing.assert_array_equal(both.quantize(values)[row], one.quantize(values[row]))


@given(st.floats(SMALLEST_SCALE, 1e30))
def test_the_power_of_two_above(scale: float) -> None:
    power = float(to_power_of_two(np.float64(scale)))
    assert np.frexp(power)[0] == 0.5
    assert scale <= power < 2 * scale


@pytest.mark.parametrize("exponent", [-126, -100, -7, 0, 1, 31, 100])
def test_a_power_of_two_is_its_own(exponent: int) -> None:
    power = 2.0**exponent
    assert to_power_of_two(np.float64(power)) == power
    assert to_power_of_two(np.nextafter(power, np.inf)) == 2 * power
    assert to_power_of_two(np.nextafter(power, 0)) == power
