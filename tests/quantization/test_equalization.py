"""Rewrites leave the fp32 function as it is, and make what is rounded alike."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.export import export_policy
from quarl_bench.errors import PolicyError, QuantizationError, SpecError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet, require_integer
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.equalization import absorb_biases, equalize_layers, find_input_ranges, scale_inputs
from quarl_bench.quantization.net import Conv2d, LayerNorm, Linear, Net
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.scheme import ObserverKind, Scheme
from tests.support.sizes import draw_examples
from tests.support.strategies import convolutions, make_net, normal, perceptrons

UNLIKE = np.array([0.01, 1.0, 30.0, 1000.0], np.float32)  # ranges of features that one scale does not serve


def draw_inputs(net, count=50):
    return normal(np.random.default_rng(1), count, *net.input_shape)


def assert_alike(one, other, x):
    expected, got = one.forward(x), other.forward(x)
    # What is summed may be larger than what comes out: both round in float32, at the size of their largest products.
    size = max(float(np.abs(layer.weight).max()) for layer in one.layers) * float(np.abs(x).max()) + 1
    for layer in one.layers:
        size = max(size, size * float(np.abs(layer.weight).sum(axis=tuple(range(1, layer.weight.ndim))).max()))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * max(1.0, size))


@draw_examples(100)
@given(st.one_of(perceptrons(), convolutions()))
def test_any_net_computes_what_it_did(net):
    equal = equalize_layers(net)
    assert_alike(net, equal, draw_inputs(net))
    assert [layer.activation for layer in equal.layers] == [layer.activation for layer in net.layers]


@draw_examples(100)
@given(st.one_of(perceptrons(), convolutions()))
def test_absorbed_biases_change_nothing_where_they_were_found(net):
    x = draw_inputs(net)
    absorbed = absorb_biases(net, x)
    assert_alike(net, absorbed, x)
    for before, after in zip(net.layers, absorbed.layers, strict=True):
        np.testing.assert_array_equal(before.weight, after.weight)


def test_what_a_neuron_never_falls_below_needs_no_integers():
    net = make_net(4, 8, 2)
    first = replace(net.layers[0], bias=net.layers[0].bias + np.float32(100))
    net, x = replace(net, layers=(first, net.layers[1])), draw_inputs(net, 500)
    absorbed = absorb_biases(net, x)
    assert_alike(net, absorbed, x)
    hidden = [np.maximum(x @ n.layers[0].weight.T + n.layers[0].bias, 0) for n in (net, absorbed)]
    assert hidden[0].min() > 90
    np.testing.assert_allclose(hidden[1].min(axis=0), 0, atol=1e-4)
    spans = [quantize_net(net, Scheme.parse(name), x).layers[0].output.scale for name in ("int8", "int8hba")]
    assert spans[1] < spans[0] / 5


@pytest.mark.parametrize("layer", range(2))
def test_an_absorption_stops_where_a_layer_is_normalized(layer):
    net = make_net(4, 8, 8, 2)
    norm = LayerNorm(np.ones(8, np.float32), np.zeros(8, np.float32))
    layers = list(net.layers)
    layers[layer] = replace(layers[layer], norm=norm)
    normalized = replace(net, layers=tuple(layers))
    assert absorb_biases(normalized, draw_inputs(net)) is normalized


def spread_neurons(seed=0):
    """A net of ReLUs whose neurons are made large and read small, and the other way round."""
    net = make_net(4, 16, 16, 2, seed=seed)
    sizes = np.logspace(-2, 2, 16).astype(np.float32)
    first, second, last = net.layers
    made = Linear(first.weight * sizes[:, None], first.bias * sizes, Activation.RELU)
    return Net((4,), (made, Linear(second.weight / sizes, second.bias, Activation.RELU), last))


def test_neurons_get_equal_ranges():
    before, after = spread_neurons(), equalize_layers(spread_neurons())
    assert_alike(before, after, draw_inputs(before))
    made = [np.abs(net.layers[0].weight).max(axis=1) for net in (before, after)]
    spreads = [sizes.max() / sizes.min() for sizes in made]
    assert spreads[0] > 1000
    assert spreads[1] < 30


@pytest.mark.parametrize("scheme", ["int8", "w8"])
def test_unlike_neurons_survive_rounding(scheme):
    net = spread_neurons()
    x = normal(np.random.default_rng(0), 500, 4)
    plain, equalized = (
        np.abs(quantize_net(net, Scheme.parse(name), x).forward(x) - net.forward(x)).mean()
        for name in (scheme, f"{scheme}cle")
    )
    assert equalized < plain / 3


@pytest.mark.parametrize("activation", [Activation.TANH, Activation.NONE])
def test_only_relus_let_a_factor_pass(activation):
    net = make_net(4, 8, 2, activation=activation)
    assert all(a is b for a, b in zip(equalize_layers(net).layers, net.layers, strict=True))


def test_dead_neurons_and_normalized_layers_stay():
    net = make_net(4, 8, 2)
    net.layers[0].weight[3] = 0
    net.layers[1].weight[:, 5] = 0
    equal = equalize_layers(net)
    np.testing.assert_array_equal(equal.layers[0].weight[[3, 5]], net.layers[0].weight[[3, 5]])
    norm = LayerNorm(np.ones(8, np.float32), np.zeros(8, np.float32))
    first = Linear(net.layers[0].weight, net.layers[0].bias, Activation.RELU, norm)
    normed = Net((4,), (first, net.layers[1]))
    assert equalize_layers(normed) is normed


def test_a_channel_is_a_neuron():
    rng = np.random.default_rng(0)
    conv = Conv2d(normal(rng, 3, 2, 3, 3), normal(rng, 3), 1, Activation.RELU)
    linear = Linear(normal(rng, 2, 3 * 6 * 6), normal(rng, 2))
    net = Net((2, 8, 8), (conv, linear))
    equal = equalize_layers(net)
    assert_alike(net, equal, draw_inputs(net))
    made = np.abs(equal.layers[0].weight).max(axis=(1, 2, 3))
    read = np.abs(equal.layers[1].weight.reshape(2, 3, 36)).max(axis=(0, 2))
    np.testing.assert_allclose(made, read, rtol=1e-5)


def test_ranges_are_largest_magnitudes_or_percentiles():
    x = np.stack([np.linspace(-5, 2, 101), np.zeros(101)], axis=1).astype(np.float32)
    np.testing.assert_allclose(find_input_ranges(x, ObserverKind.MIN_MAX, 100.0), [5, 1])
    found = find_input_ranges(x, ObserverKind.PERCENTILE, 50.0)
    assert 1.5 < found[0] < 2
    assert found[1] == 1


def make_unlike(seed=0, **transform):
    net = scale_inputs(make_net(4, 16, 2, seed=seed), 1 / UNLIKE.astype(np.float64))
    return PolicyNet(ObservationTransform((4,), **transform), net, ActionHead(HeadKind.ARGMAX))


def test_inputs_of_unlike_ranges_survive_eight_bits():
    policy, x = make_unlike(), normal(np.random.default_rng(0), 2000, 4) * UNLIKE
    agreed = {}
    for scheme in ("int8", "int8eq"):
        quantized = policy.quantize(Scheme.parse(scheme), x)
        agreed[scheme] = (require_integer(quantized).act(x) == policy.act(x)).mean()
    assert agreed["int8eq"] > 0.95
    assert agreed["int8"] < 0.9


@pytest.mark.parametrize("backend", ["dump", pytest.param("c", marks=pytest.mark.needs("cc")),
                                     pytest.param("litert", marks=pytest.mark.needs("litert")),
                                     pytest.param("onnx", marks=pytest.mark.needs("onnx"))])  # fmt: skip
@pytest.mark.parametrize("scheme", ["int8eq", "int8cle", "int8pcpct999eqcle", "int8clehba", "int8eqclehbaw42"])
def test_what_is_deployed_is_the_golden_model(backend, scheme, tmp_path):
    """From the raw observation on: the export re-runs its golden pairs, and fresh observations agree as well."""
    policy, x = make_unlike(3), normal(np.random.default_rng(1), 600, 4) * UNLIKE
    integers = require_integer(policy.quantize(Scheme.parse(scheme), x[:300]))
    deployed = export_policy(
        integers, tmp_path / "artefact", x[:300], scheme=scheme, source_sha256="0" * 64, backend=backend
    )
    np.testing.assert_array_equal(deployed.act(x), integers.act(x))


@pytest.mark.parametrize(
    ("transform", "reason"),
    [({"normalization": Normalization(np.zeros(4), np.ones(4))}, "normalized, feature by feature, already")],
)
def test_what_has_no_ranges_to_divide_by_is_refused(transform, reason):
    x = normal(np.random.default_rng(0), 20, 4)
    with pytest.raises(PolicyError, match=reason):
        make_unlike(**transform).quantize(Scheme.parse("int8eq"), x)
    with pytest.raises(QuantizationError, match="needs the inputs' ranges"):
        make_unlike().quantize(Scheme.parse("int8eq"))
    image = ObservationTransform((1, 8, 8), image=True)
    with pytest.raises(PolicyError, match="pixels have one range already"):
        image.divide(np.ones(64))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("w8eq", "eq needs quantized activations"),
        ("int8uncaleq", "which uncal leaves out"),
        ("w8hba", "hba needs quantized activations"),
        ("int8uncalhba", "which uncal leaves out"),
    ],
)
def test_schemes_without_ranges_are_refused(name, reason):
    with pytest.raises(SpecError, match=reason):
        Scheme.parse(name)


@pytest.mark.parametrize("name", ["int8eq", "int8cle", "int4pcpct999eqclehba", "w8cle", "w4sympccle"])
def test_names_are_canonical(name):
    assert Scheme.parse(name).name == name
