"""From calibration activations to the range a quantizer covers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.calibration.formats import Range, choose_format
from quarl_bench.quantization.scheme import ObserverKind, Scheme

MOMENTUM = 0.1  # weight of the newest batch in a moving average
FACTORS = tuple(0.95**power for power in range(32))  # of a range that is shrunk: down to a fifth
SAMPLE = 1 << 15  # values in which factors are compared
BATCH = 64  # activations are averaged over batches of this many observations


def observe(values: NDArray[np.floating[Any]], scheme: Scheme) -> Range:
    """The range of `values` (observations, ...) in the order in which they were visited, by the scheme's observer.

    min_max: extremes. percentile: the central `percentile` percent, each tail cut by half the rest.
    moving_average: exponential average of the extremes of successive batches of observations (Jacob et al. 2018).
    mean_square: the extremes times the factor at which the scheme's integers have the least squared error.
    """
    if values.size == 0:
        raise QuantizationError("no calibration activations; calibrate on at least one observation")
    if not np.isfinite(values).all():
        raise QuantizationError("calibration activations are not finite; the policy or an observation is damaged")
    if scheme.observer is ObserverKind.PERCENTILE:
        tail = (100.0 - scheme.percentile) / 2
        low, high = np.percentile(values, [tail, 100.0 - tail])
        return Range(float(low), float(high))
    if scheme.observer is ObserverKind.MOVING_AVERAGE:
        return _average(values)
    if scheme.observer is ObserverKind.MEAN_SQUARE:
        return _shrink(values, scheme)
    return Range(float(values.min()), float(values.max()))


def _shrink(values: NDArray[np.floating[Any]], scheme: Scheme) -> Range:
    flat = values.reshape(-1)
    low, high = min(float(flat.min()), 0.0), max(float(flat.max()), 0.0)
    sample = flat[:: -(-flat.size // SAMPLE)].astype(np.float32)
    integers = IntegerFormat(scheme.bit_width)

    def find_error(factor: float) -> float:
        found = choose_format(Range(factor * low, factor * high), integers, scheme)
        lost = sample - found.count_steps(sample) * found.scale
        return float(np.square(lost, dtype=np.float64).sum())

    best = min(FACTORS, key=find_error) if high > low else 1.0
    return Range(best * low, best * high)


def _average(values: NDArray[np.floating[Any]]) -> Range:
    low, high = float(values[:BATCH].min()), float(values[:BATCH].max())
    for start in range(BATCH, len(values), BATCH):
        batch = values[start : start + BATCH]
        low += MOMENTUM * (float(batch.min()) - low)
        high += MOMENTUM * (float(batch.max()) - high)
    return Range(low, high)
