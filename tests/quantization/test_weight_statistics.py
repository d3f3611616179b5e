"""Weight statistics: known values, the original's definition of its divergence, and what must hold for every net."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.weight_statistics import (
    POOLED,
    list_histograms,
    measure_kl,
    measure_spread,
    measure_weights,
    pool_weights,
    relative_rmse,
)
from quarl_bench.report.page.kinds.weight_histograms import view_spreads
from quarl_bench.report.page.plots import draw_weights, render_svg
from tests.support.rows import make_row, to_rows
from tests.support.strategies import convolutions, inputs_of, make_net, normal, perceptrons

SCHEMES = st.sampled_from([*(f"w{bits}" for bits in (2, 3, 4, 8, 16, 32)), "w4floor", "w8sym", "w3pc", "fp16", "fp32"])


def make_layer(*weights, bias=(0.0,)):
    return Net((len(weights),), (Linear(np.float32([weights]), np.float32(bias)),))


def original_kl(before, after):
    """The densities of the original's script, pair by pair."""
    p, q = before.ravel().astype(float), after.ravel().astype(float)
    return stats.entropy(stats.gaussian_kde(p)(p), stats.gaussian_kde(q)(q))


def test_the_spread_of_known_numbers():
    spread = measure_spread(np.float32([[-3.0, 1.0], [1.0, 5.0]]))
    assert (spread.count, spread.low, spread.high, spread.range) == (4, -3.0, 5.0, 8.0)
    assert spread.std == pytest.approx(np.sqrt(8.0))
    assert measure_spread(np.arange(1001, dtype=np.float32)).p999 == pytest.approx(999.0)


def test_two_bits_of_a_known_tensor():
    # Range [-1, 1] in 4 steps of 0.5: -1 stays, 0.3 becomes 0.5, 1 is clipped to the last level, 0.5.
    single, pooled = measure_weights(make_layer(-1.0, 0.3, 1.0), Scheme.parse("w2"))
    assert single.levels == 2
    expected = np.sqrt(0.2**2 + 0.5**2) / np.sqrt(1 + 0.3**2 + 1)
    assert single.relative_rmse == pytest.approx(expected, rel=1e-6)
    assert pooled.relative_rmse == pytest.approx(expected, rel=1e-6)
    assert (single.name, pooled.name, single.shape, pooled.shape) == ("layers.0.weight", POOLED, (1, 3), (3,))


def test_what_is_rewritten_is_compared_with_what_is_rounded():
    net = make_net(6, 16, 16, 3, spread=2.0)
    uneven = tuple(replace(layer, weight=layer.weight * 10.0**i) for i, layer in enumerate(net.layers))
    net, scheme = replace(net, layers=uneven), Scheme.parse("w32cle")
    assert relative_rmse(net, scheme) < 1e-6
    assert all(each.relative_rmse < 1e-6 for each in measure_weights(net, scheme))
    *each, _ = list_histograms(net, Scheme.parse("w2cle"))
    for histogram in each:  # levels lie among the weights that are drawn
        assert histogram.low * 1.5 <= min(histogram.levels) <= max(histogram.levels) <= histogram.high * 1.5


def test_biases_are_left_out():
    scheme = Scheme.parse("w4")
    plain, biased = (measure_weights(make_layer(0.1, -0.7, bias=(bias,)), scheme) for bias in (0.0, 1e6))
    assert plain == biased


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("spread", [1e-4, 1.0, 300.0])
def test_the_divergence_is_the_original_script_s(bits, spread):
    net = make_net(20, 30, 5, spread=spread)
    rounded = quantize_net(net, Scheme.parse(f"w{bits}"))
    for layer, after in zip(net.layers, rounded.layers, strict=True):
        expected = original_kl(layer.weight, after.weight)
        assert measure_kl(layer.weight, after.weight) == pytest.approx(expected, rel=5e-3, abs=1e-9)
    *single, pooled = measure_weights(net, Scheme.parse(f"w{bits}"))
    assert pooled.kl == pytest.approx(sum(statistics.kl for statistics in single))


def test_the_divergence_of_heavy_tails_is_the_original_script_s():
    weight = np.random.default_rng(0).standard_cauchy((40, 50)).astype(np.float32)
    after = np.rint(weight * 4) / np.float32(4)
    assert measure_kl(weight, after) == pytest.approx(original_kl(weight, after), rel=5e-3)


def test_a_divergence_without_densities_is_none():
    constant, other = np.full(5, 0.3, np.float32), np.float32([0, 1, 2, 3, 4])
    assert measure_kl(constant, other) is None
    assert measure_kl(other, constant) is None
    assert measure_kl(np.float32([0.3]), np.float32([0.5])) == 0.0
    # Two bits round everything here to zero but one, and that is clipped: some tensor has no density.
    assert measure_weights(make_layer(0.5, 0.5, 0.5), Scheme.parse("w2"))[-1].kl is None


def test_a_far_outlier_costs_no_memory():
    weight = np.append(normal(np.random.default_rng(0), 5000), np.float32(1e9))
    assert measure_kl(weight, weight) == pytest.approx(0.0, abs=1e-12)


@given(st.one_of(perceptrons(), convolutions()), SCHEMES)
def test_what_holds_for_every_net(net, name):
    scheme = Scheme.parse(name)
    *single, pooled = measure_weights(net, scheme)
    rounded = quantize_net(net, scheme)
    assert len(single) == len(net.layers)
    assert pooled.spread.count == sum(statistics.spread.count for statistics in single) == pool_weights(net).size
    assert pooled.spread.low == min(statistics.spread.low for statistics in single)
    assert pooled.spread.high == max(statistics.spread.high for statistics in single)
    assert pooled.relative_rmse == relative_rmse(net, scheme)
    # The pooled error is a mean of the layers' errors, weighted by their squared norms.
    errors = [statistics.relative_rmse for statistics in single]
    assert min(errors) - 1e-9 <= pooled.relative_rmse <= max(errors) + 1e-9
    if scheme.bit_width < 16:
        assert all(statistics.levels <= 2**scheme.bit_width for statistics in single)
    if name in ("fp32", "w32"):
        assert pooled.relative_rmse < 1e-6
    for layer, after, statistics in zip(net.layers, rounded.layers, single, strict=True):
        norm = np.linalg.norm(layer.weight.astype(float))
        expected = np.linalg.norm(layer.weight.astype(float) - after.weight) / norm if norm else 0.0
        assert statistics.relative_rmse == pytest.approx(expected)


@given(perceptrons())
def test_more_bits_lose_less(net):
    errors = [relative_rmse(net, Scheme.parse(f"w{bits}")) for bits in (2, 6, 10, 14)]
    assert errors == sorted(errors, reverse=True)


@given(st.one_of(perceptrons(), convolutions()))
def test_histograms_count_every_weight_once(net):
    *single, pooled = list_histograms(net, Scheme.parse("w4"))
    for layer, histogram in zip(net.layers, single, strict=True):
        assert sum(histogram.counts) == layer.weight.size
        assert len(histogram.counts) == 100
        per_channel = isinstance(layer, Conv2d)
        assert per_channel or 1 <= len(histogram.levels) <= 16
    assert sum(pooled.counts) == pool_weights(net).size
    assert pooled.levels == ()


def test_integer_schemes_are_measured_on_their_own_levels():
    net = make_net(4, 8, 2)
    *single, pooled = measure_weights(net, Scheme.parse("int4"), inputs_of(net, 50))
    assert all(statistics.levels <= 15 for statistics in single)
    assert pooled.relative_rmse == relative_rmse(net, Scheme.parse("int4"), inputs_of(net, 50)) > 0.01
    with pytest.raises(QuantizationError, match="calibration"):
        measure_weights(net, Scheme.parse("int4"))


def test_rows_show_algorithms_per_task_and_tasks_per_algorithm():
    entry = {"low": -1.0, "high": 1.0, "counts": [1, 2, 1], "levels": []}
    histograms = {task: {"dqn": entry, "ppo": entry} for task in ("pong", "breakout")}
    rows = to_rows([make_row("fp32", 1.0, "supported", histograms=histograms), make_row("w8", 1.0, "supported")])
    views = {view.title: [bins.title for bins in view.bins] for view in view_spreads(rows)}
    assert views == {
        "weights on breakout": ["dqn", "ppo"],
        "weights on pong": ["dqn", "ppo"],
        "weights of dqn": ["breakout", "pong"],
        "weights of ppo": ["breakout", "pong"],
    }
    assert render_svg(draw_weights(next(view_spreads(rows)).bins, shared=True), "x").startswith("<svg")
