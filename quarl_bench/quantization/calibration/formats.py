"""From the range that a quantizer covers to its integers."""

from dataclasses import dataclass

import numpy as np

from quarl_bench.quantization.affine import SMALLEST_SCALE, IntegerFormat, choose_affine, to_power_of_two
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.quantization.scheme import Scheme


@dataclass(frozen=True)
class Range:
    """Lowest and highest value to represent."""

    low: float
    high: float


def choose_format(
    span: Range, format: IntegerFormat, scheme: Scheme, smallest: float = SMALLEST_SCALE
) -> ActivationFormat:
    """Scale and zero point of activations within `span`, and 0; the scale is at least `smallest`."""
    affine = choose_affine(span.low, span.high, format, symmetric=scheme.symmetric, endpoint=True)
    scale = np.maximum(affine.scale, smallest)
    if scheme.power_of_two:
        scale = to_power_of_two(scale)
    if (scale != affine.scale).any():  # a grown scale moves the zero point
        low = min(span.low, 0.0)
        offset = 0 if scheme.symmetric else int(np.rint(-low / scale)) + format.minimum
        return ActivationFormat(format, np.float32(scale), int(np.clip(offset, format.minimum, format.maximum)))
    return ActivationFormat(format, np.float32(scale), int(affine.zero_point))
