"""What the weights of a net look like, and what a scheme does to them. Biases are left out everywhere.

What a scheme rewrites, to the same function, is looked at as it is rewritten: that is what it rounds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.net import Conv2d, Floats, Net
from quarl_bench.quantization.ptq import count_levels, quantize_net, rewrite
from quarl_bench.quantization.scheme import Granularity, Scheme

POOLED = "all"  # the name of the statistics over every weight tensor together
STEPS = 32  # grid points per kernel bandwidth; densities are exact to about 1e-4
REACH = 6  # bandwidths after which a Gaussian kernel is zero
BINS = 100  # of a histogram, as QuaRL's
MOST_LEVELS = 256  # more lines than this are one block of colour
MOST_STEPS = 1 << 20  # grid points; a far outlier makes the grid coarser, not the memory larger

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Spread:
    """Count, extremes, standard deviation and 99.9th percentile of a set of numbers."""

    count: int
    low: float
    high: float
    std: float  # around the mean, of the population
    p999: float  # 99.9th percentile of the absolute values

    @property
    def range(self) -> float:
        """The largest weight minus the smallest."""
        return self.high - self.low


@dataclass(frozen=True)
class WeightStatistics:
    """One weight tensor, or all of them pooled, before and after quantization.

    `relative_rmse` is ||W - Q(W)|| / ||W|| (0 for W = 0). `levels` counts distinct values after quantization, in the
    richest tensor or, for scales per channel, channel. `kl` is what `measure_kl` says; pooled, the sum over tensors.
    """

    name: str
    shape: tuple[int, ...]
    spread: Spread
    relative_rmse: float
    levels: int
    kl: float | None


@dataclass(frozen=True)
class Histogram:
    """Counts of the weights in bins of equal width from `low` to `high`.

    `levels` are the values that occur after quantization; empty where there are too many to tell apart, and for pooled
    tensors, which have no common levels.
    """

    name: str
    low: float
    high: float
    counts: tuple[int, ...]
    levels: tuple[float, ...]


def measure_weights(net: Net, scheme: Scheme, inputs: Floats | None = None) -> tuple[WeightStatistics, ...]:
    """Statistics of every weight tensor in the net's order, and last of all pooled.

    `inputs` are the calibration inputs that a calibrated int<n> needs.
    """
    net, after = _quantize(net, scheme, inputs)
    found = []
    for index, (layer, rounded) in enumerate(zip(net.layers, after.layers, strict=True)):
        per_channel = scheme.granularity_of(isinstance(layer, Conv2d)) is Granularity.PER_CHANNEL
        found.append(
            WeightStatistics(
                name=f"layers.{index}.weight",
                shape=layer.weight.shape,
                spread=measure_spread(layer.weight),
                relative_rmse=_compare(layer.weight, rounded.weight),
                levels=count_levels(rounded.weight, per_channel),
                kl=measure_kl(layer.weight, rounded.weight),
            )
        )
    before, rounded_all = pool_weights(net), pool_weights(after)
    divergences = [statistics.kl for statistics in found]
    known = [kl for kl in divergences if kl is not None]
    pooled = WeightStatistics(
        name=POOLED,
        shape=before.shape,
        spread=measure_spread(before),
        relative_rmse=_compare(before, rounded_all),
        levels=max(statistics.levels for statistics in found),
        kl=float(sum(known)) if len(known) == len(divergences) else None,
    )
    return (*found, pooled)


def list_histograms(net: Net, scheme: Scheme, bins: int = BINS) -> tuple[Histogram, ...]:
    """How often weights lie where, with the levels they are rounded to: per tensor, and last of all pooled."""
    net, after = _quantize(net, scheme, None)
    found = []
    for index, (layer, rounded) in enumerate(zip(net.layers, after.layers, strict=True)):
        levels = np.unique(rounded.weight)
        drawn = levels.tolist() if len(levels) <= MOST_LEVELS else ()
        found.append(_count(f"layers.{index}.weight", layer.weight, bins, tuple(drawn)))
    return (*found, draw_pooled(net, bins))


def draw_pooled(net: Net, bins: int = BINS) -> Histogram:
    """How often weights of the net lie where, all tensors pooled."""
    return _count(POOLED, pool_weights(net), bins, ())


def relative_rmse(net: Net, scheme: Scheme, inputs: Floats | None = None) -> float:
    """||W - Q(W)|| / ||W|| over all weight tensors of the net together."""
    before, after = _quantize(net, scheme, inputs)
    return _compare(pool_weights(before), pool_weights(after))


def pool_weights(net: Net) -> Floats:
    """All weights of the net in one vector."""
    return np.concatenate([layer.weight.ravel() for layer in net.layers])


def measure_spread(values: Floats) -> Spread:
    """The spread of `values`, of any shape; QuantizationError when there are none."""
    if values.size == 0:
        raise QuantizationError("an empty tensor has no spread")
    x = values.astype(np.float64)
    p999 = float(np.percentile(np.abs(x), 99.9))
    return Spread(x.size, float(x.min()), float(x.max()), float(x.std()), p999)


def measure_kl(before: Floats, after: Floats) -> float | None:
    """The weight divergence that QuaRL's own script prints, for two tensors of one shape, in nats.

    It is sum_i P_i ln(P_i / Q_i) with P_i = p(w_i) / sum_j p(w_j) and Q_i = q(w'_i) / sum_j q(w'_j), where p is the
    Gaussian kernel density of the weights w before quantization, q that of the weights w' after it, both with Scott's
    bandwidth std * n^(-1/5) (std with n - 1), and i runs over the weights. p and q are thus read at different points:
    it says how the density seen by each weight changes, and is no divergence of two distributions over one axis.
    0 for a single weight, as there; None where a density does not exist because all values are equal. Densities are
    sums of kernels on a grid, not over all pairs, so that millions of weights take seconds.
    """
    if before.size == 1:
        return 0.0
    p, q = (_read_densities(values.astype(np.float64).ravel()) for values in (before, after))
    if p is None or q is None:
        return None
    p, q = p / p.sum(), q / q.sum()
    return float((p * np.log(p / q)).sum())


def _quantize(net: Net, scheme: Scheme, inputs: Floats | None) -> tuple[Net, Net]:
    """The net that the scheme rounds, and the rounded one."""
    after = quantize_net(net, scheme, inputs)
    return rewrite(net, scheme, inputs), after.dequantized if isinstance(after, QuantizedNet) else after


def _count(name: str, weight: Floats, bins: int, levels: tuple[float, ...]) -> Histogram:
    counts, edges = np.histogram(weight.astype(np.float64), bins)
    return Histogram(name, float(edges[0]), float(edges[-1]), tuple(counts.tolist()), levels)


def _compare(before: Floats, after: Floats) -> float:
    size = float(np.linalg.norm(before.astype(np.float64)))
    return float(np.linalg.norm(before.astype(np.float64) - after)) / size if size else 0.0


def _read_densities(x: Doubles) -> Doubles | None:
    """Each value's own kernel density, up to a constant factor."""
    bandwidth = float(x.std(ddof=1)) * x.size**-0.2
    if not bandwidth > 0.0:
        return None
    low, span = float(x.min()), float(x.max() - x.min())
    step = max(bandwidth / STEPS, span / MOST_STEPS)
    reach = int(REACH * bandwidth / step) + 1
    position = (x - low) / step + reach
    left = np.floor(position).astype(np.int64)
    share = position - left
    size = int(left.max()) + reach + 2
    mass = np.bincount(left, 1.0 - share, size) + np.bincount(left + 1, share, size)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / bandwidth) ** 2)
    density = np.convolve(mass, kernel, "same")
    return np.asarray((1.0 - share) * density[left] + share * density[left + 1])
