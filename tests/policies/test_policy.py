"""Observation transforms, action heads and the forms of a policy."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError, QuantizationError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import (
    IntegerPolicy,
    Policy,
    PolicyNet,
    QuantizedPolicy,
    deployable,
    require_integer,
)
from quarl_bench.quantization.recurrent.cells import CellKind
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.strategies import make_net, make_policy, make_recurrent, normal

LOW, HIGH = np.float32([-1, -2]), np.float32([1, 3])
STATISTICS = Normalization(np.float64([1, -2]), np.float64([4, 0]), clip=3.0, epsilon=1e-4)
IMAGES = ObservationTransform((3, 4, 5), image=True)


def test_normalization_by_hand() -> None:
    """(5 - 1) / sqrt(4.0001), and 0.005 / sqrt(0.0001); 40 standard deviations are clipped to 3."""
    transform = ObservationTransform((2,), normalization=STATISTICS)
    found = transform.apply(np.array([[5, -1.995], [81, -2]]))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.float32([[4 / np.sqrt(4.0001), 0.5], [3, 0]]))
    np.testing.assert_array_equal(ObservationTransform((2,)).apply(np.array([[5, 1]])), [[5, 1]])


def test_images_are_divided_by_255_and_come_either_way_round() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    found = IMAGES.apply(images)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, images.astype(np.float32) / np.float32(255))
    np.testing.assert_array_equal(IMAGES.apply(images.transpose(0, 2, 3, 1)), found)
    assert IMAGES.input_shape == (3, 4, 5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_other_observations_are_flattened(dtype: type) -> None:
    transform = ObservationTransform((2, 3))
    found = transform.apply(np.arange(12).reshape(2, 2, 3).astype(dtype))
    assert (transform.input_shape, found.dtype) == ((6,), np.float32)
    np.testing.assert_array_equal(found, np.arange(12).reshape(2, 6))


@pytest.mark.parametrize(
    "transform, observations, said",
    [
        (ObservationTransform((2,)), np.zeros((5, 3)), r"shape \(5, 3\) for a policy of \(n, 2\)"),
        (ObservationTransform((2,)), np.zeros(2), r"shape \(2,\)"),
        (ObservationTransform((2,)), np.zeros((1, 2), complex), "dtype complex128"),
        (ObservationTransform((2,)), np.array([["a", "b"]]), "dtype <U1"),
        (ObservationTransform((2,)), np.array([[None, 1]]), "dtype object"),
        (IMAGES, np.zeros((1, 3, 4, 5), np.float32), "takes uint8 images"),
        (IMAGES, np.zeros((1, 3, 4, 5), np.uint16), "takes uint8 images"),
        (IMAGES, np.zeros((1, 4, 3, 5), np.uint8), r"shape \(1, 4, 3, 5\)"),
        (IMAGES, np.zeros((3, 4, 5), np.uint8), r"shape \(3, 4, 5\)"),
    ],
    ids=range(9),
)
def test_what_is_no_batch_of_observations_is_refused(
    transform: ObservationTransform, observations: NDArray[Any], said: str
) -> None:
    with pytest.raises(PolicyError, match=said):
        transform.apply(observations)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"mean": np.zeros(2), "variance": np.zeros(3)}, "differ"),
        ({"mean": np.float64([np.nan, 0]), "variance": np.ones(2)}, "finite"),
        ({"mean": np.zeros(2), "variance": np.float64([np.inf, 0])}, "finite"),
        ({"mean": np.zeros(2), "variance": np.float64([-1, 0])}, "not negative"),
        *(({"mean": np.zeros(2), "variance": np.ones(2), "clip": clip}, "positive") for clip in (0.0, -1.0, np.nan)),
        ({"mean": np.zeros(2), "variance": np.ones(2), "epsilon": 0.0}, "positive"),
    ],
    ids=range(8),
)
def test_bad_statistics_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        Normalization(**arguments)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"shape": (3,), "normalization": STATISTICS}, r"statistics of shape \(2,\)"),
        ({"shape": (3, 4), "image": True}, "image observations are"),
    ],
    ids=["statistics", "image"],
)
def test_bad_transforms_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        ObservationTransform(**arguments)


@pytest.mark.parametrize(
    "head, outputs, actions",
    [
        (ActionHead(HeadKind.ARGMAX), [[1, 3], [2, 2], [-1, -5]], [1, 0, 0]),
        (ActionHead(HeadKind.PARTS, sizes=(2, 3)), [[1, 3, 0, 7, 2], [2, 2, 4, 1, 4]], [[1, 1], [0, 0]]),
        (ActionHead(HeadKind.BITS), [[0.1, -3, 0], [-0.0, 2, 5]], [[1, 0, 0], [0, 1, 1]]),
        (ActionHead(HeadKind.CLIP, LOW, HIGH), [[0.5, 9], [-7, -7]], [[0.5, 3], [-1, -2]]),
        (ActionHead(HeadKind.TANH, LOW, HIGH), [[0, 0], [99, -99]], [[0, 0.5], [1, -2]]),
        (
            ActionHead(HeadKind.TANH, LOW, HIGH, mean_limit=0.25),
            [[0, 99], [-99, 0.125]],
            [[0, 0.5 + 2.5 * np.tanh(0.25)], [-np.tanh(0.25), 0.5 + 2.5 * np.tanh(0.125)]],
        ),
    ],
    ids=["argmax", "parts", "bits", "clip", "tanh", "limit"],
)
def test_heads_by_hand(head: ActionHead, outputs: list[list[float]], actions: list[Any]) -> None:
    found = head.act(np.float32(outputs))
    assert found.dtype == (np.int64 if head.discrete else np.float32)
    np.testing.assert_allclose(found, actions, rtol=1e-6)


@pytest.mark.parametrize(
    "arguments, said",
    [
        ({"kind": HeadKind.ARGMAX, "low": LOW}, "no action bounds"),
        ({"kind": HeadKind.PARTS}, "sizes are of a head of parts"),
        ({"kind": HeadKind.PARTS, "sizes": (2, 0)}, "above 0"),
        ({"kind": HeadKind.ARGMAX, "sizes": (2,)}, "sizes are of a head of parts"),
        ({"kind": HeadKind.BITS, "low": LOW}, "no action bounds"),
        ({"kind": HeadKind.CLIP, "low": LOW, "high": HIGH, "masked": True}, "masks; they are of discrete actions"),
        ({"kind": HeadKind.CLIP}, "needs bounds"),
        ({"kind": HeadKind.TANH, "low": LOW}, "needs bounds"),
        ({"kind": HeadKind.TANH, "low": LOW, "high": HIGH[:1]}, "needs bounds"),
        ({"kind": HeadKind.TANH, "low": LOW[None], "high": HIGH[None]}, "needs bounds"),
        ({"kind": HeadKind.CLIP, "low": HIGH, "high": LOW}, "low <= high"),
        ({"kind": HeadKind.CLIP, "low": LOW, "high": np.float32([1, np.inf])}, "finite"),
        ({"kind": HeadKind.CLIP, "low": np.float32([np.nan, 0]), "high": HIGH}, "finite"),
        *(
            ({"kind": HeadKind.TANH, "low": LOW, "high": HIGH, "mean_limit": limit}, "mean_limit")
            for limit in (0.0, -1.0, np.nan)
        ),
    ],
    ids=range(16),
)
def test_bad_heads_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        ActionHead(**arguments)


def test_a_policy_must_fit_together() -> None:
    with pytest.raises(PolicyError, match="a net of input"):
        PolicyNet(ObservationTransform((5,)), make_net(4, 2), ActionHead(HeadKind.ARGMAX))
    with pytest.raises(PolicyError, match="3 outputs for 2 action bounds"):
        PolicyNet(ObservationTransform((4,)), make_net(4, 3), ActionHead(HeadKind.CLIP, LOW, HIGH))
    with pytest.raises(PolicyError, match=r"3 outputs for choices among 2 \+ 3"):
        PolicyNet(ObservationTransform((4,)), make_net(4, 3), ActionHead(HeadKind.PARTS, sizes=(2, 3)))
    with pytest.raises(PolicyError, match="not for policies with a state"):
        replace(make_recurrent(CellKind.GRU), head=ActionHead(HeadKind.ARGMAX, masked=True))


@pytest.mark.parametrize("kind", HeadKind)
@pytest.mark.parametrize("normalized", [False, True], ids=["raw", "normalized"])
def test_act_is_transform_net_head(kind: HeadKind, normalized: bool) -> None:
    policy = make_policy(kind, normalized=normalized)
    x = normal(np.random.default_rng(1), 30, 4, spread=5)
    outputs = policy.net.forward(policy.transform.apply(x))
    np.testing.assert_array_equal(policy.outputs(x), outputs)
    np.testing.assert_array_equal(policy.act(x), policy.head.act(outputs))


@pytest.mark.parametrize("kind", HeadKind)
@pytest.mark.parametrize("scheme", ["fp32", "fp16", "w8", "w32", "int8", "int8pow2"])
def test_quantized_forms_act_almost_alike(kind: HeadKind, scheme: str) -> None:
    policy = make_policy(kind, normalized=True)
    x = normal(np.random.default_rng(1), 3000, 4, spread=2)
    quantized = policy.quantize(Scheme.parse(scheme), x)
    integer = Scheme.parse(scheme).integer
    assert type(quantized) is (QuantizedPolicy if integer else PolicyNet)
    assert type(deployable(quantized)) is (IntegerPolicy if integer else PolicyNet)
    expected, found = policy.act(x), deployable(quantized).act(x)
    assert found.dtype == expected.dtype
    if policy.head.discrete:
        assert (found == expected).mean() > 0.96
    else:
        assert np.abs(found - expected).mean() < 0.01 * (HIGH - LOW).max()


@pytest.mark.parametrize("scheme, form", [("fp32", "PolicyNet"), ("w8", "PolicyNet"), ("int8", "QuantizedPolicy")])
def test_a_policy_is_named_in_one_line(scheme: str, form: str) -> None:
    policy = make_policy(HeadKind.ARGMAX).quantize(Scheme.parse(scheme), normal(np.random.default_rng(1), 30, 4))
    assert repr(policy) == f"{form}(4 -> {policy.net.outputs}, argmax)"


def test_calibration_sees_normalized_observations() -> None:
    policy = make_policy(normalized=True)
    x = 1000 + normal(np.random.default_rng(0), 100, 4)
    quantized = policy.quantize(Scheme.parse("int8"), x)
    assert isinstance(quantized, QuantizedPolicy)
    assert float(quantized.net.input.scale) == pytest.approx(10 / 255)  # everything is clipped to 10


def test_only_integer_schemes_have_an_integer_form() -> None:
    policy = make_policy()
    x = normal(np.random.default_rng(0), 100, 4)
    for scheme in ("fp32", "fp16", "w8"):
        with pytest.raises(QuantizationError, match="no integer form"):
            require_integer(policy.quantize(Scheme.parse(scheme)))
    integer = require_integer(policy.quantize(Scheme.parse("int8"), x))
    assert require_integer(integer) is integer
    assert deployable(integer) is integer


@pytest.mark.parametrize("rule", Requantization, ids=str)
def test_the_integer_form_under_any_rule(rule: Requantization) -> None:
    x = normal(np.random.default_rng(0), 500, 4)
    quantized = make_policy().quantize(Scheme.parse("int8"), x)
    assert isinstance(quantized, QuantizedPolicy)
    integer = quantized.to_integer(rule)
    assert integer.net.requantization is rule
    assert (integer.act(x) == quantized.act(x)).mean() > 0.97


def test_uncalibrated_needs_no_observations() -> None:
    policy: Policy = make_policy().quantize(Scheme.parse("int8uncal"))
    assert isinstance(policy, QuantizedPolicy)
    with pytest.raises(QuantizationError, match="needs calibration"):
        make_policy().quantize(Scheme.parse("int8"))


@pytest.mark.parametrize("scheme", ["fp32", "w8", "int8"])
def test_every_form_checks_observations(scheme: str) -> None:
    policy = deployable(make_policy().quantize(Scheme.parse(scheme), np.ones((3, 4), np.float32)))
    with pytest.raises(PolicyError, match="shape"):
        policy.act(np.ones((3, 5), np.float32))
    with pytest.raises(PolicyError, match="dtype"):
        policy.act(np.ones((3, 4), complex))


@pytest.mark.parametrize("seed", range(3))
def test_a_trained_policy_quantized_to_eight_bits_acts_alike(baseline, seed: int) -> None:
    policy = baseline(f"ppo-cartpole-seed{seed}").policy
    x = normal(np.random.default_rng(0), 2000, 4, spread=0.3)
    expected = policy.act(x)
    for scheme, share in (("w8", 0.97), ("int8", 0.95)):
        assert (deployable(policy.quantize(Scheme.parse(scheme), x)).act(x) == expected).mean() > share
