"""Ranges of calibration activations against formulas written out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.calibration.formats import Range, choose_format
from quarl_bench.quantization.calibration.observers import BATCH, MOMENTUM, observe
from quarl_bench.quantization.scheme import ObserverKind, Scheme
from tests.support.strategies import SEEDS, normal

EXTREMES, AVERAGE = Scheme.parse("int8"), Scheme.parse("int8ema")
SIZES = st.sampled_from([1, 2, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH, 3 * BATCH + 7])


@given(SEEDS, SIZES)
def test_min_max(seed: int, size: int) -> None:
    values = normal(np.random.default_rng(seed), size, 3)
    assert observe(values, EXTREMES) == Range(min(values.flat), max(values.flat))


@given(SEEDS, SIZES)
def test_moving_average_is_a_weighted_sum_of_batch_extremes(seed: int, size: int) -> None:
    """The first of k batches weighs (1 - m)^(k-1), batch i > 0 weighs m (1 - m)^(k-1-i)."""
    values = normal(np.random.default_rng(seed), size, 3)
    batches = [values[start : start + BATCH] for start in range(0, size, BATCH)]
    last = len(batches) - 1
    weights = [(1 - MOMENTUM) ** last, *(MOMENTUM * (1 - MOMENTUM) ** (last - i) for i in range(1, last + 1))]
    assert sum(weights) == pytest.approx(1)
    low = sum(w * float(batch.min()) for w, batch in zip(weights, batches, strict=True))
    high = sum(w * float(batch.max()) for w, batch in zip(weights, batches, strict=True))
    found = observe(values, AVERAGE)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12, abs=1e-12)


def test_moving_average_depends_on_the_order_of_visits() -> None:
    values = np.concatenate([np.zeros((BATCH, 1)), np.ones((BATCH, 1))]).astype(np.float32)
    assert observe(values, AVERAGE) == Range(MOMENTUM, MOMENTUM)
    assert observe(values[::-1], AVERAGE) == Range(1 - MOMENTUM, 1 - MOMENTUM)


@pytest.mark.parametrize("percentile, low, high", [(50.0, 250, 750), (99.0, 5, 995), (99.8, 1, 999), (100.0, 0, 1000)])
def test_percentile_cuts_half_the_rest_at_each_end(percentile: float, low: float, high: float) -> None:
    values = np.random.default_rng(0).permutation(np.arange(1001.0))
    found = observe(values, replace(EXTREMES, observer=ObserverKind.PERCENTILE, percentile=percentile))
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


@given(SEEDS, SIZES, st.floats(50, 100))
def test_percentile_interpolates_between_sorted_values(seed: int, size: int, percentile: float) -> None:
    values = np.random.default_rng(seed).standard_normal((size, 2))
    ordered, tail = np.sort(values, axis=None), (100 - percentile) / 200
    positions = np.array([tail, 1 - tail]) * (ordered.size - 1)
    found = observe(values, replace(EXTREMES, observer=ObserverKind.PERCENTILE, percentile=percentile))
    expected = np.interp(positions, np.arange(ordered.size), ordered)
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=1e-9)
    outer = observe(values, EXTREMES)
    assert outer.low <= found.low <= found.high <= outer.high


@pytest.mark.parametrize("kind", ObserverKind)
def test_empty_is_refused(kind: ObserverKind) -> None:
    with pytest.raises(QuantizationError, match="at least one observation"):
        observe(np.empty((0, 3), np.float32), replace(EXTREMES, observer=kind))


@pytest.mark.parametrize("kind", ObserverKind)
@pytest.mark.parametrize("damage", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(kind: ObserverKind, damage: float) -> None:
    values = np.ones((3, 3), np.float32)
    values[1, 2] = damage
    with pytest.raises(QuantizationError, match="not finite"):
        observe(values, replace(EXTREMES, observer=kind))


@given(SEEDS, st.integers(2, 8), st.sampled_from(["", "sym", "pow2"]))
def test_mean_square_ranges_have_the_least_error_of_their_family(seed: int, bits: int, option: str) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((500, 3)) ** 3 * [1, 1, 5]  # heavy tails, which few bits pay for
    scheme = Scheme.parse(f"int{bits}{option}mse" if option == "sym" else f"int{bits}mse{option}")

    def find_error(span: Range) -> float:
        found = choose_format(span, IntegerFormat(bits), scheme)
        return float(((found.dequantize(found.quantize(values)) - values) ** 2).mean())

    found, extremes = observe(values, scheme), observe(values, EXTREMES)
    factor = found.high / extremes.high
    assert found.low == pytest.approx(factor * extremes.low)
    errors = [find_error(Range(0.95**k * extremes.low, 0.95**k * extremes.high)) for k in range(32)]
    assert find_error(found) <= min(errors) * 1.0001
    assert bits > 4 or option or factor < 0.9
