"""Every integer backend computes the golden model's integers, in every kernel that claims to.

The committed sample takes one policy of each head and activation. All policies on 100,000 observations each, and
NatureCNN on 2,000: `QUARL_EXHAUSTIVE=1 pytest tests/backends/test_bit_exactness.py -k committed`.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from quarl_bench.backends.base import Backend, to_channel_last
from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.export import export_policy, find_divergence, run_integers
from quarl_bench.backends.litert.backend import LITERT_DYNAMIC
from quarl_bench.backends.litert.dynamic_range import EXACT as EXACT_FLOATS
from quarl_bench.backends.litert.dynamic_range import SCHEME, DynamicNet, compute_dynamic
from quarl_bench.backends.litert.flatbuffer import write_dynamic_net
from quarl_bench.backends.litert.runtime import LiteRTRunner
from quarl_bench.backends.registry import BACKENDS, find_backend
from quarl_bench.errors import DeploymentError, QuantizationError
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS, TEST_SEEDS
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet, require_integer
from quarl_bench.quantization.activations import Activation, is_tabled
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import LayerNorm, Linear, Net
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.quantization.ptq import quantize_net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.layers import INT8, draw_integers, make_layer, make_tie_net, requantize_half_up
from tests.support.places import POLICIES
from tests.support.sizes import EXHAUSTIVE, choose, draw_examples, pick_kernels
from tests.support.strategies import convolutions, inputs_of, make_net, make_policy, normal, perceptrons
from tests.support.visits import Visit, load_any

NEEDS = {"litert": ("litert",), "litert-dynamic": ("litert",), "c": ("cc",), "onnx": ("onnx",), "dump": ()}
EXACT = [
    ("litert", "xnnpack"),
    *(("c", kernel) for kernel in find_backend("c").kernels),
    *((name, find_backend(name).kernels[0]) for name in ("onnx", "dump")),
]
SAMPLE = ("a2c-cartpole-seed0", "ppo-mountaincarcontinuous-seed0", "ddpg-pendulum-seed0", "dqn-cartpole-qat4-seed0")
SOME = [Activation.ELU, Activation.GELU]  # one table rises, one falls and rises; of GELU two operators
COUNT, IMAGES, TIES = choose(1_000, 100_000), choose(10, 2_000), choose(1_024, 4_096)
STATES = normal(np.random.default_rng(0), 300, 4, spread=2.0)


def over_kernels(pairs: list[tuple[str, str]]) -> Any:
    """Parametrizes over backends and their kernels, each with what it needs."""
    return pytest.mark.parametrize(
        ("backend", "kernel"), [pytest.param(*pair, marks=pytest.mark.needs(*NEEDS[pair[0]])) for pair in pairs]
    )


C = find_backend("c").kernels
every_kernel = over_kernels(EXACT)
some_kernels = over_kernels([pair for pair in EXACT if pair[1] not in C or pair[1] in pick_kernels(C)])
one_kernel = over_kernels(choose([pair for pair in EXACT if pair[1] not in C[1:]], EXACT))


def over(*names: str) -> Any:
    """Parametrizes over backends, each with what it needs."""
    return pytest.mark.parametrize(
        "backend", [pytest.param(name, marks=pytest.mark.needs(*NEEDS[name])) for name in names]
    )


every_backend = over(
    *(backend.name for backend in map(find_backend, BACKENDS.own) if backend.kernels)
)  # that has integers


def list_names(*, image: bool) -> list[Any]:
    """Policies to compare on: the sample, or all; images are recognized by their game."""
    found = sorted(folder.name for folder in POLICIES.glob("*") if ("pong" in folder.name) == image)
    return [name for name in found if EXHAUSTIVE or image or name in SAMPLE] or [
        pytest.param("", marks=pytest.mark.skip(reason=f"no policies in {POLICIES}"))
    ]


@cache
def open_integers(name: str, scheme: str, count: int, visit: Visit) -> tuple[IntegerPolicy, NDArray[Any]]:
    """A committed policy in integers, and states that it visits."""
    policy = load_any(name).policy
    if isinstance(policy, PolicyNet):
        calibration = visit(name, min(count, 2000), CALIBRATION_SEEDS)
        integers = require_integer(policy.quantize(Scheme.parse(scheme), calibration))
    else:
        integers = require_integer(policy)
    # Episodes of images are dear: the sample compares on the states that it calibrates on.
    return integers, visit(name, count, TEST_SEEDS if EXHAUSTIVE or not policy.transform.image else CALIBRATION_SEEDS)


def compare(policy: IntegerPolicy, observations: NDArray[Any], backend: str, kernel: str) -> None:
    """Equal in every output; or refused, where a backend has no kernels for the policy's bits."""
    q = policy.net.input.quantize(policy.transform.apply(observations))
    if backend == "litert" and policy.net.input.format.bit_width != 8:
        with pytest.raises(DeploymentError, match="8-bit signed activations"):
            run_integers(policy.net, q, backend, kernel)
        return
    expected, got = policy.net.run(q), run_integers(policy.net, q, backend, kernel)
    different = int((got != expected).sum())
    print(f"{backend} {kernel}: {different} of {expected.size} outputs differ on {len(q)} observations")  # noqa: T201
    assert different == 0, find_divergence(policy.net, q[:1000], backend, kernel)


# --- committed policies, on the states they visit -------------------------------------------------------------------


@some_kernels
@pytest.mark.parametrize("name", list_names(image=False))
def test_committed_policies_are_bit_exact(name: str, backend: str, kernel: str, visit: Visit) -> None:
    policy, observations = open_integers(name, "int8", COUNT, visit)
    assert len(observations) == COUNT
    compare(policy, observations, backend, kernel)


@pytest.mark.parametrize("scheme", choose(["int8"], ["int8", "int8pow2"]))
@some_kernels
@pytest.mark.parametrize("name", list_names(image=True))
def test_committed_images_are_bit_exact(name: str, backend: str, kernel: str, scheme: str, visit: Visit) -> None:
    compare(*open_integers(name, scheme, IMAGES, visit), backend, kernel)


# --- every activation, near ties included ---------------------------------------------------------------------------


@one_kernel
@pytest.mark.parametrize("activation", choose(SOME, [activation for activation in Activation if is_tabled(activation)]))
def test_every_activation_is_bit_exact(activation: Activation, backend: str, kernel: str) -> None:
    """Two hidden layers, and a last one whose sums lie on ties in front of its table."""
    rng = np.random.default_rng(list(Activation).index(activation))
    net = make_net(6, 16, 16, 3, activation=activation, seed=int(rng.integers(1000)))
    x = inputs_of(net, COUNT, spread=2.0)
    for scheme in ("int8", "int8pow2"):
        quantized = quantize_net(net, Scheme.parse(scheme), x[:1000])
        assert isinstance(quantized, QuantizedNet)
        integers = IntegerNet.from_quantized(quantized)
        q = integers.input.quantize(x)
        assert all(len(np.unique(values)) > 20 for values in integers.trace(q)[:2])  # the tables are read widely
        np.testing.assert_array_equal(run_integers(integers, q, backend, kernel), integers.run(q))
        front, behind = quantized.layers[0].output, quantized.layers[0].tabled
        tie = make_tie_net(rng, exact=scheme != "int8", per_channel=True, relu=False, outputs=TIES)
        layer = replace(tie.layers[0], activation=activation, tabled=behind)
        weight_scale = layer.weight_scale * (front.scale / layer.output.scale)
        layer = replace(layer, output=front, weight_scale=np.float32(weight_scale))
        tie = replace(tie, layers=(layer,))
        q = draw_integers(rng, 1, tie)
        np.testing.assert_array_equal(run_integers(tie, q, backend, kernel), tie.run(q))


@pytest.mark.parametrize(("backend", "kernel"), [
    pytest.param(name, find_backend(name).float_kernels[0], marks=pytest.mark.needs(*NEEDS[name]))
    for name in ("litert", "onnx", "c")
])  # fmt: skip
@pytest.mark.parametrize("activation", choose(SOME, list(Activation)))
def test_every_activation_in_float32(activation: Activation, backend: str, kernel: str) -> None:
    net = make_net(6, 16, 16, 3, activation=activation)
    policy = PolicyNet(ObservationTransform((6,)), net, ActionHead(HeadKind.ARGMAX))
    x = inputs_of(net, COUNT, spread=10.0)
    found = find_backend(backend).start(find_backend(backend).make_files(policy), kernel).run(x)
    expected = net.forward(x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())


# --- dynamic range: no integer form, but float32 outputs bit by bit -------------------------------------------------


@pytest.mark.needs("litert")
@pytest.mark.parametrize("name", [*list_names(image=False), *list_names(image=True)])
def test_dynamic_range_is_bit_exact(name: str, visit: Visit) -> None:
    policy = load_any(name).policy
    if not isinstance(policy, PolicyNet):
        pytest.skip("trained with its quantizer: it has static ranges")
    image = policy.transform.image
    observations = visit(
        name, IMAGES if image else COUNT, CALIBRATION_SEEDS if image and not EXHAUSTIVE else TEST_SEEDS
    )
    rounded = policy.quantize(Scheme.parse(SCHEME))
    assert isinstance(rounded, PolicyNet)
    x, files = policy.transform.apply(observations), LITERT_DYNAMIC.write(rounded)
    expected = compute_dynamic(rounded).outputs(observations)
    got = LITERT_DYNAMIC.start(files, "xnnpack").run(to_channel_last(x))
    older = LITERT_DYNAMIC.start(files, "builtin").run(to_channel_last(x))
    largest, span = np.abs(older - expected).max(), np.abs(expected).max()
    print(  # noqa: T201
        f"{name}: {(got != expected).sum()} of {expected.size} outputs differ in XNNPACK; "
        f"{(older != expected).mean():.1%} in the older kernels, by {largest / span:.2g} of the largest"
    )
    np.testing.assert_array_equal(got, expected)
    # The older kernels are no other policy: another rounding of the same ranges moves little.
    assert 0 < largest < 0.03 * span
    assert (expected != policy.outputs(observations)).mean() > 0.9  # and it is not float32 in disguise


@pytest.mark.needs("litert")
@given(
    net=st.one_of(perceptrons(), convolutions()),
    scheme=st.sampled_from(["w8symnarrowpc", "w8symnarrow", "w3symnarrowpc"]),
)
@draw_examples(40)
def test_any_net_in_dynamic_range_is_bit_exact(net: Net, scheme: str) -> None:
    kinds = (layer.activation if layer.activation in EXACT_FLOATS else Activation.TANH for layer in net.layers)
    layers = tuple(replace(layer, activation=kind) for layer, kind in zip(net.layers, kinds, strict=True))
    rounded = quantize_net(replace(net, layers=layers), Scheme.parse(scheme))
    assert isinstance(rounded, Net)
    if any(layer.weight.shape[2:] == (1, 1) for layer in net.layers):
        with pytest.raises(DeploymentError, match="1x1 convolution"):
            DynamicNet.of(rounded)
        return
    dynamic, x = DynamicNet.of(rounded), inputs_of(net, 30)
    x[0] = 0  # a range of no width
    got = LiteRTRunner(write_dynamic_net(dynamic)).run(to_channel_last(x))
    np.testing.assert_array_equal(got, dynamic.forward(x))


@pytest.mark.needs("litert")
def test_zero_points_on_ties_are_rounded_as_the_runtime_does() -> None:
    """Ranges whose zero point is a tie up to the last bit: from their two ends, float64 often finds two of them."""
    rng = np.random.default_rng(0)
    scale = np.exp(rng.normal(0, 3, 20_000))
    low = -(rng.integers(0, 255, 20_000) + 0.5) / scale
    x = np.stack([low, 255 / scale + low], axis=1).astype(np.float32)
    x = x[(x[:, 0] < 0) & (x[:, 1] > 0)]
    net = DynamicNet.of(Net((2,), (Linear(np.eye(2, dtype=np.float32), np.zeros(2, np.float32)),)))
    np.testing.assert_array_equal(LiteRTRunner(write_dynamic_net(net)).run(x), net.forward(x))
    step = np.float32(255) / (x[:, 1] - x[:, 0])
    least, most = (-128 - (x[:, 0] * step).astype(np.float64)), (127 - (x[:, 1] * step).astype(np.float64))
    assert (np.rint(least) != np.rint(most)).mean() > 0.1  # they are ties indeed


@pytest.mark.needs("litert")
def test_a_dynamic_range_artefact_proves_itself(tmp_path: Path) -> None:
    rounded = make_policy(HeadKind.CLIP, normalized=True).quantize(Scheme.parse(SCHEME))
    export_policy(rounded, tmp_path / "a", STATES, scheme=SCHEME, source_sha256="0" * 64, backend="litert-dynamic")
    deployed = load_artefact(tmp_path / "a")
    assert verify(deployed) == 256
    assert deployed.artefact.weight_types == ("INT8", "INT8")
    np.testing.assert_array_equal(deployed.outputs(STATES), compute_dynamic(rounded).outputs(STATES))
    assert "quantized at every call" in (tmp_path / "a" / "manifest.json").read_text()


def test_dynamic_range_refuses_functions_whose_last_bits_are_unknown() -> None:
    rounded = quantize_net(make_net(4, 8, 2, activation=Activation.ELU), Scheme.parse(SCHEME))
    assert isinstance(rounded, Net)
    with pytest.raises(DeploymentError, match="layer 0 ends in elu, whose float32 kernel is not known to the last bit"):
        DynamicNet.of(rounded)


@pytest.mark.parametrize(
    ("scheme", "message"),
    [
        ("fp32", "^litert-dynamic: the weights of layer 0 are no integers times a scale; use scheme w8symnarrowpc"),
        ("w8", "^litert-dynamic: the weights of layer 0 are no integers times a scale; use scheme w8symnarrowpc"),
        ("int8", "^litert-dynamic: it quantizes activations itself, at every call; use scheme w8symnarrowpc"),
    ],
)
def test_dynamic_range_refuses_what_it_cannot_store(scheme: str, message: str, tmp_path: Path) -> None:
    parsed = Scheme.parse(scheme)
    quantized = make_policy().quantize(parsed, STATES if parsed.integer else None)
    with pytest.raises(DeploymentError, match=message):
        export_policy(quantized, tmp_path / "a", STATES, scheme=scheme, source_sha256="0", backend="litert-dynamic")


# --- vectors that separate rounding rules ---------------------------------------------------------------------------


@every_kernel
@pytest.mark.parametrize("exact", [False, True])
def test_ties_round_as_fp32_rne_and_as_no_other_rule(backend: str, kernel: str, exact: bool) -> None:
    rng = np.random.default_rng(7)
    rules = (Requantization.HALF_AWAY, Requantization.DOUBLE_HALF_UP, Requantization.GEMMLOWP)
    wrong = dict.fromkeys((*rules, "half_up"), 0)
    total = 0
    for per_channel, relu in ((True, False), (True, True), (False, True)):
        net = make_tie_net(rng, exact=exact, per_channel=per_channel, relu=relu, outputs=TIES)
        q = draw_integers(rng, 1, net)
        got = run_integers(net, q, backend, kernel)
        np.testing.assert_array_equal(got, net.run(q))
        for rule in rules:
            wrong[rule] += int((got != net.with_requantization(rule).run(q)).sum())
        wrong["half_up"] += int((got != requantize_half_up(net)).sum())
        total += got.size
    assert min(wrong.values()) > total / 100  # so that a backend of another rule cannot pass


@every_kernel
def test_accumulators_beyond_24_bits(backend: str, kernel: str) -> None:
    rng = np.random.default_rng(10)
    net = make_layer(
        rng.integers(-128, 128, (64, 4096)),
        rng.integers(-(1 << 30), 1 << 30, 64),
        np.float32([0.01]),
        ActivationFormat(INT8, np.float32(3000.0), 5),
    )
    q = draw_integers(rng, 200, net)
    np.testing.assert_array_equal(run_integers(net, q, backend, kernel), net.run(q))


@every_kernel
def test_thresholds_are_fp32_rne(backend: str, kernel: str) -> None:
    rng = np.random.default_rng(3)
    net = make_tie_net(rng, exact=True, per_channel=True, relu=False, outputs=512)
    q = draw_integers(rng, 1, net)
    thresholds = net.with_requantization(Requantization.THRESHOLDS)
    np.testing.assert_array_equal(run_integers(thresholds, q, backend, kernel), net.run(q))


@every_backend
@pytest.mark.parametrize("kind", HeadKind)
def test_observations_beyond_every_range_saturate(kind: HeadKind, backend: str, tmp_path: Path) -> None:
    policy = require_integer(make_policy(kind, normalized=True).quantize(Scheme.parse("int8"), STATES))
    folder = tmp_path / "a"
    export_policy(policy, folder, STATES, scheme="int8", source_sha256="0" * 64, backend=backend)
    deployed = load_artefact(folder)
    assert verify(deployed) == 261
    rng = np.random.default_rng(1)
    wild = rng.choice([np.inf, -np.inf, 1e30, -1e30, 0.0, 1e-30, 3.0], (500, 4)).astype(np.float32)
    for observations in (wild, STATES):
        np.testing.assert_array_equal(deployed.outputs(observations), policy.outputs(observations))
        np.testing.assert_array_equal(deployed.act(observations), policy.act(observations))
    with pytest.raises(QuantizationError, match="NaN"):
        deployed.act(np.full_like(wild, np.nan))


# --- what a backend that differs, or lacks something, says ----------------------------------------------------------


def damage(policy: Any) -> Any:
    """Another bias in the second layer; beginnings of one layer stay as they are."""
    if len(policy.net.layers) < 2:
        return policy
    first, second, *rest = policy.net.layers
    bias = second.bias.copy()
    bias[1] += 3000
    layers = (first, replace(second, bias=bias), *rest)
    return replace(policy, net=replace(policy.net, layers=layers))


@every_backend
def test_the_first_divergence_is_named(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine: Backend = find_backend(backend)
    monkeypatch.setitem(BACKENDS.loaded, backend, replace(genuine, write=lambda policy: genuine.write(damage(policy))))
    policy = require_integer(make_policy().quantize(Scheme.parse("int8"), STATES))
    with pytest.raises(DeploymentError) as caught:
        export_policy(policy, tmp_path / "a", STATES, scheme="int8", source_sha256="0" * 64, backend=backend)
    message = str(caught.value)
    assert message.startswith(f"{backend}: {genuine.kernels[0]} kernel, output 1 of golden pair ")
    assert "first in layer 1, element (1,) of pair " in message
    assert "expected " in message
    assert "\n" not in message
    assert not (tmp_path / "a").exists()


def with_rule(rule: Requantization) -> Callable[[IntegerPolicy], IntegerPolicy]:
    return lambda policy: replace(policy, net=policy.net.with_requantization(rule))


@pytest.mark.parametrize("rule", [Requantization.HALF_AWAY, Requantization.DOUBLE_HALF_UP, Requantization.GEMMLOWP])
@over("litert", "c", "onnx")
def test_other_rules_are_refused_by_name(backend: str, rule: Requantization, tmp_path: Path) -> None:
    policy = with_rule(rule)(require_integer(make_policy().quantize(Scheme.parse("int8"), STATES)))
    with pytest.raises(DeploymentError, match=f"^{backend}: .*not as {rule}; use IntegerNet.with_requantization"):
        export_policy(policy, tmp_path / "a", STATES, scheme="int8", source_sha256="0" * 64, backend=backend)


@every_backend
def test_normalized_layers_are_refused(backend: str, tmp_path: Path) -> None:
    policy = make_policy()
    first, second = policy.net.layers
    assert isinstance(first, Linear)
    norm = LayerNorm(np.ones(8, np.float32), np.zeros(8, np.float32))
    policy = replace(policy, net=Net((4,), (replace(first, norm=norm), second)))
    with pytest.raises(DeploymentError, match=f"^{backend}: layer 0 is normalized"):
        export_policy(policy, tmp_path / "a", STATES, scheme="fp32", source_sha256="0" * 64, backend=backend)


def test_unknown_backends_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match="unknown backend 'tpu'; known are litert, litert-dynamic, c, onnx, dump"):
        export_policy(make_policy(), tmp_path / "a", STATES, scheme="fp32", source_sha256="0", backend="tpu")


@over("litert", "c", "onnx")
def test_an_empty_batch_has_no_outputs(backend: str) -> None:
    net: IntegerNet = require_integer(make_policy().quantize(Scheme.parse("int8"), STATES)).net
    assert run_integers(net, np.empty((0, 4), np.int64), backend).shape == (0, 2)
