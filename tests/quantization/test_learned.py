"""LQCC's quantizer: equation (1), both weight ranges, learned scales, integers that equal the forward bit by bit."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.errors import PolicyError, QuantizationError, SpecError
from quarl_bench.policies.action_table import look_up, tabulate_actions
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.learned import (
    MOMENTUM,
    WARM_UP,
    LearnedNet,
    LearnedScale,
    find_bound,
    quantize_after,
    round_weight,
    run_integer_layers,
)
from quarl_bench.quantization.net import LayerNorm, Net
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Family, Scheme
from quarl_bench.quantization.training.stacked_nets import StackedNet, chain
from tests.support.learned import make_learned
from tests.support.strategies import SEEDS, make_net, normal

STATES = 100_000
BITS = st.integers(2, 8)


WIDTHS = st.none() | st.integers(1, 4096)


@given(BITS, BITS, BITS, WIDTHS, st.booleans(), st.booleans())
def test_scheme_names_survive_a_round_trip(first, core, last, width, wide, after):
    options = (f"h{width}" if width and not after else "") + "wide" * wide + "ptq" * after
    name = f"i{first}c{core}o{last}{options}"
    scheme = Scheme.parse(name)
    assert scheme.name == name
    assert (scheme.family, scheme.bit_width) == (Family.LEARNED, core)
    assert scheme.width == (0 if after else width or 0)
    assert scheme.integer
    assert scheme.trained is not after


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("i1c3o8", "input"),
        ("i8c9o8", "core"),
        ("i8c3o16", "output"),
        ("i8c3o8h0", "width"),
        ("i8c3o8h5000", "width"),
        ("i8c3o8h16ptq", "leave out h16"),
    ],
)
def test_impossible_bits_and_widths_are_named(name, part):
    with pytest.raises(SpecError, match=part):
        Scheme.parse(name)


@pytest.mark.parametrize(
    ("format", "limits"),
    [
        (IntegerFormat(8), (-128, 127, 128)),
        (IntegerFormat(2), (-2, 1, 2)),
        (IntegerFormat(2, narrow_range=True), (-1, 1, 1)),
        (IntegerFormat(3, signed=False), (0, 7, 7)),
    ],
)
def test_bounds_are_those_of_equation_1(format, limits):
    assert (format.minimum, format.maximum, find_bound(format)) == limits


def test_golden_weights_of_both_ranges():
    """The largest weight is 1: two bits of equation (1) make it 1/2, the narrow range keeps it."""
    weight = torch.tensor([[[-1.0, -0.6, -0.2, 0.3, 1.0]]])
    wide, of_wide = round_weight(weight, IntegerFormat(2))
    narrow, of_narrow = round_weight(weight, IntegerFormat(2, narrow_range=True))
    assert wide.flatten().tolist() == [-2, -1, 0, 1, 1]
    assert narrow.flatten().tolist() == [-1, -1, 0, 0, 1]
    assert (float(of_wide), float(of_narrow)) == (0.5, 1)
    scales = {name: make_learned(name).export(0).layers[0] for name in ("i8c2o8", "i8c2o8wide")}
    largest = float(make_learned("i8c2o8").layers[0][0].detach().abs().max())
    assert scales["i8c2o8"].weight_scale == pytest.approx(largest)
    assert scales["i8c2o8wide"].weight_scale == pytest.approx(largest / 2)
    assert set(np.unique(scales["i8c2o8"].weight)) == {-1, 0, 1}
    assert scales["i8c2o8wide"].weight.min() >= -2


@given(BITS, st.booleans(), st.floats(1e-3, 1e3), SEEDS)
def test_rounding_is_equation_1(bits, signed, scale, seed):
    integers = IntegerFormat(bits, signed=signed)
    step = np.float32(scale) / np.float32(find_bound(integers))
    x = normal(np.random.default_rng(seed), 1, 50, 4, spread=scale)
    found = run_integer_layers(torch.from_numpy(x), [integers], 1 / torch.tensor([[[step]]])).numpy()
    ratio = x * (np.float32(1) / step)
    assert np.array_equal(found, np.clip(np.rint(ratio), integers.minimum, integers.maximum))
    inside = (ratio >= integers.minimum) & (ratio <= integers.maximum)
    assert (np.abs(found * step - x)[inside] <= step / 2 * (1 + 1e-4)).all()


def test_gradients_are_straight_through_and_the_scales_too():
    """d QDQ / d x is 1 inside and 0 where it clips; d QDQ / d s is (q - x / step) / q_s, and q / q_s where it clips."""
    scale = LearnedScale(IntegerFormat(3), 1)
    x = torch.tensor([[[-9.0, -0.9, -0.1, 0.4, 0.8, 9.0]]], requires_grad=True)
    q = run_integer_layers(x, [scale.format], 1 / scale.step)
    (q * scale.step).sum().backward()
    assert q.flatten().tolist() == [-4, -4, 0, 2, 3, 3]
    assert x.grad.flatten().tolist() == pytest.approx([0, 1, 1, 1, 1, 0])
    assert float(scale.scale.grad) == pytest.approx(sum([-4, -4 + 3.6, 0.4, 2 - 1.6, 3 - 3.2, 3]) / 4, rel=1e-5)


@pytest.mark.parametrize(("bits", "largest"), [(2, 2.0), (4, 0.0714286)])
def test_the_largest_weight_answers_for_the_scale(bits, largest):
    """Golden gradients of Brevitas 0.13.4, Int8WeightPerTensorFloat: its default, with which LQCC was trained."""
    weight = torch.tensor([[[0.5, -0.2, 0.1], [-0.8, 0.3, 0.45]]], requires_grad=True)
    above = torch.tensor([[[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]]])
    q, step = round_weight(weight, IntegerFormat(bits, narrow_range=True))
    (q * step * above).sum().backward()
    expected = above.clone()
    expected[0, 1, 0] = largest
    torch.testing.assert_close(weight.grad, expected, rtol=1e-5, atol=1e-6)


def test_gradients_of_a_whole_net_are_those_of_its_parts():
    """Against autograd through straight-through rounding, layer by layer, scales included."""

    def requantize(x, factor, low, high):
        steps = x * factor
        inside = (steps > (low - 0.5 if low < 0 else 0)) & (steps < high + 0.5)
        rounded = steps + (steps.round() - steps).detach()
        return torch.where(inside, rounded, rounded.detach().clamp(low, high))

    net = make_learned("i5c3o4", (7, 16, 16, 3))
    x, (source, *rest) = torch.randn(2, 64, 7), net.scales
    net(x).square().sum().backward()
    found = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    step, q = source.step, requantize(x, 1 / source.step, source.format.minimum, source.format.maximum)
    for weight, bias, target in zip(net.layers[::2], net.layers[1::2], rest, strict=True):
        weight_step = weight.abs().amax((1, 2), keepdim=True) / find_bound(net.weight_format)
        q_weight = weight / weight_step
        q_weight = q_weight + (q_weight.round() - q_weight).detach()
        product = step * weight_step
        q_bias = bias / product.view(-1, 1)
        q_bias = q_bias + (q_bias.round() - q_bias).detach()
        sums = torch.baddbmm(q_bias[:, None], q, q_weight.mT)
        step = target.step
        q = requantize(sums, product / step, target.format.minimum, target.format.maximum)
    (q * step).square().sum().backward()
    for ours, parameter in zip(found, net.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-3, atol=1e-3 * float(parameter.grad.abs().max()))


def test_a_relu_passes_nothing_from_below():
    x = torch.tensor([[[-0.3, -5.0, 0.3, 2.2]]], requires_grad=True)
    run_integer_layers(x, [IntegerFormat(2, signed=False)], torch.ones(1, 1, 1)).sum().backward()
    assert x.grad.flatten().tolist() == [0, 0, 1, 1]


def test_scales_watch_a_moving_percentile_then_learn():
    scale = LearnedScale(IntegerFormat(8), 2)
    first, second = torch.linspace(0, 1, 400_001).repeat(2, 1, 1), torch.full((2, 1, 400_001), 3.0)
    scale.observe(first)
    assert scale.scale.flatten().tolist() == pytest.approx([0.99999] * 2, abs=1e-6)  # four values lie above
    scale.observe(second)
    assert scale.scale.flatten().tolist() == pytest.approx([0.99999 + MOMENTUM * (3 - 0.99999)] * 2)
    net = make_learned("i8c3o8", batches=WARM_UP)
    before = [s.scale.detach().clone() for s in net.scales]
    with torch.no_grad():
        net(100 * torch.randn(2, 256, 11), observe=True)
    assert all(torch.equal(s.scale, then) for s, then in zip(net.scales, before, strict=True))
    net(torch.randn(2, 256, 11)).square().sum().backward()
    assert all(float(s.scale.grad.abs().min()) > 0 for s in net.scales)


@pytest.mark.parametrize("scheme", ["i8c3o8", "i6c2o8", "i3c2o8wide", "i8c8o8", "i4c3o2"])
def test_integers_act_as_the_training_forward_did(scheme):
    """On 100,000 states no action differs, neither by stored thresholds nor by the float rule they reproduce."""
    net = make_learned(scheme, (11, 32, 32, 3), nets=1, spread=0.7)
    states = normal(np.random.default_rng(7), STATES, 11, spread=2.0)
    with torch.no_grad():
        expected = net(torch.from_numpy(states)[None])[0].numpy()
    for rule in (Requantization.THRESHOLDS, Requantization.FP32_RNE):
        got = IntegerNet.from_quantized(net.export(0), rule).forward(states)
        assert int((got != expected).sum()) == 0


@pytest.mark.parametrize("scheme", ["i6c2o8", "i8c3o3"])
def test_a_table_replaces_the_tanh(scheme):
    """From the raw state to the action in integers and one look-up: the action of the policy, on every state."""
    net = IntegerNet.from_quantized(make_learned(scheme, nets=1).export(0), Requantization.THRESHOLDS)
    high = np.array([0.4, 1.0, 2.0], dtype=np.float32)
    policy = IntegerPolicy(ObservationTransform((11,)), net, ActionHead(HeadKind.TANH, -high, high))
    states = normal(np.random.default_rng(3), STATES, 11, spread=2.0)
    table = tabulate_actions(policy)
    assert table.shape == (2 ** Scheme.parse(scheme).output_bits, 3)
    found = look_up(table, net.run(net.input.quantize(states)), net.output.format.minimum)
    assert np.array_equal(found, policy.act(states))
    argmax = IntegerPolicy(policy.transform, net, ActionHead(HeadKind.ARGMAX))
    with pytest.raises(PolicyError, match="argmax"):
        tabulate_actions(argmax)


def test_bits_go_where_the_scheme_says():
    net = make_learned("i6c2o5h7").export(1)
    assert (net.input.format, net.layers[-1].output.format) == (IntegerFormat(6), IntegerFormat(5))
    assert all(layer.weight_format == IntegerFormat(2, narrow_range=True) for layer in net.layers)
    assert all(layer.output.format == IntegerFormat(2, signed=False) for layer in net.layers[:-1])
    assert [layer.activation for layer in net.layers] == [Activation.RELU, Activation.RELU, Activation.NONE]


def test_after_training_eight_bits_are_close_and_two_are_not():
    net, inputs = make_net(11, 32, 32, 3), normal(np.random.default_rng(1), 5_000, 11)
    exact = net.forward(inputs)
    errors = [
        np.sqrt(np.mean((quantize_after(net, Scheme.parse(name), inputs).forward(inputs) - exact) ** 2)) / exact.std()
        for name in ("i8c8o8", "i8c4o8", "i8c2o8")
    ]
    assert errors[0] < 0.05 < errors[1] < 0.5 < errors[2]


def test_a_scheme_says_whether_it_is_trained_or_applied():
    net, inputs = make_net(11, 16, 3), normal(np.random.default_rng(1), 500, 11)
    scheme = Scheme.parse("i6c3o8ptq")
    applied = IntegerNet.from_quantized(quantize_net(net, scheme, inputs))
    expected = IntegerNet.from_quantized(quantize_after(net, scheme, inputs), Requantization.THRESHOLDS)
    assert np.array_equal(applied.forward(inputs), expected.forward(inputs))
    for name, other in (("i6c3o8h16wide", "i6c3o8wideptq"), ("qat4", "int4")):
        with pytest.raises(QuantizationError, match=f"{name} is trained, not applied; use {other} "):
            quantize_net(net, Scheme.parse(name), inputs)


def test_the_order_of_the_inputs_hardly_matters():
    """States come in visiting order; those of the last episode do not decide the scales."""
    net, rng = make_net(11, 16, 3), np.random.default_rng(2)
    inputs = normal(rng, 6_000, 11) * np.linspace(2, 0.1, 6_000, dtype=np.float32)[:, None]
    scales = [
        float(quantize_after(net, Scheme.parse("i8c8o8"), order).input.scale)
        for order in (inputs, rng.permutation(inputs))
    ]
    assert scales[0] == pytest.approx(scales[1], rel=0.05)


def test_only_what_has_learned_scales_is_quantized_so():
    with pytest.raises(QuantizationError, match="i<bits>"):
        LearnedNet((3, 4, 2), Scheme.parse("qat4"), [torch.Generator()])
    tanh = make_net(3, 8, 2, activation=Activation.TANH)
    with pytest.raises(QuantizationError, match="calibration"):
        quantize_after(make_net(3, 8, 2), Scheme.parse("i8c8o8"), np.zeros((0, 3), dtype=np.float32))
    net = make_net(3, 8, 2)
    idle = Net((3,), (replace(net.layers[0], weight=np.zeros_like(net.layers[0].weight)), net.layers[1]))
    with pytest.raises(QuantizationError, match="weights of layer 0 are too small beside its bias"):
        quantize_net(idle, Scheme.parse("i8c3o6ptq"), normal(np.random.default_rng(0), 10, 3))
    norm = LayerNorm(np.ones(8, np.float32), np.zeros(8, np.float32))
    normalized = Net((3,), (replace(net.layers[0], norm=norm), net.layers[1]))
    image = Net((1, 1, 3), net.layers)
    for other in (tanh, normalized, image):
        with pytest.raises(QuantizationError, match=r"i8c3o6ptq: .* nothing but ReLUs .* use int8"):
            quantize_net(other, Scheme.parse("i8c3o6ptq"), normal(np.random.default_rng(0), 10, *other.input_shape))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("learns", [(True, True), (False, True), (True, False), (False, False)])
def test_a_chain_has_autograds_gradients(dtype, close, learns):
    """Six nets: in bf16 that is a whole block and a part of one."""
    generators = [torch.Generator().manual_seed(k) for k in range(6)]
    net = StackedNet((8, 16, 16, 2), generators)
    stream = torch.Generator().manual_seed(0)
    parts = [
        torch.randn(3, 9, width, generator=stream).requires_grad_(needs)
        for width, needs in zip((5, 3), learns, strict=True)
    ]
    chain(parts[0], list(net.layers), beside=parts[1], copies=2, dtype=dtype).square().sum().backward()
    found = [tensor.grad for tensor in (*parts, *net.layers)]
    for tensor in (*parts, *net.layers):
        tensor.grad = None
    y = torch.cat(parts, 2).repeat_interleave(2, 0)
    for index in range(0, 6, 2):
        y = torch.baddbmm(net.layers[index + 1][:, None], y, net.layers[index].mT)
        y = y.relu() if index < 4 else y
    y.square().sum().backward()
    for ours, tensor in zip(found, (*parts, *net.layers), strict=True):
        if tensor.grad is None:
            assert ours is None
        else:
            # By the norm: in bf16 a sum near 0 may be on the other side of a ReLU, and its gradient another one.
            assert (ours - tensor.grad).norm() <= close * tensor.grad.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_net_does_not_depend_on_its_neighbours(dtype):
    alone, together = (
        StackedNet((5, 32, 2), [torch.Generator().manual_seed(k) for k in ks], dtype) for ks in ((3,), (1, 3, 2))
    )
    x = torch.randn(3, 20, 5)
    assert torch.equal(together(x)[1], alone(x[1:2])[0])
    exported = together.export(1)
    close = 1e-5 if dtype is torch.float32 else 0.02
    np.testing.assert_allclose(
        exported.forward(x[1].numpy()), alone(x[1:2])[0].detach().numpy(), rtol=close, atol=close
    )
