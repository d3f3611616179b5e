"""The canonical dump gives its policy back, number for number."""

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.dump import ARRAYS, DESCRIPTION, RAW, read_dump, write_dump
from quarl_bench.backends.export import export_policy
from quarl_bench.errors import DeploymentError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy, PolicyNet, require_integer
from quarl_bench.quantization.net import Net
from quarl_bench.quantization.requantize import Requantization
from quarl_bench.quantization.scheme import Scheme
from tests.support.sizes import draw_examples
from tests.support.strategies import convolutions, inputs_of, make_policy, normal, perceptrons

STATES = normal(np.random.default_rng(0), 100, 4, spread=2.0)


def quantize(policy: PolicyNet, scheme: str = "int8") -> IntegerPolicy:
    return require_integer(policy.quantize(Scheme.parse(scheme), STATES))


def require_same(one: Any, other: Any) -> None:
    """Equal types and values, through dataclasses, tuples and arrays."""
    assert type(one) is type(other)
    if is_dataclass(one) and not isinstance(one, type):
        for item in fields(one):
            require_same(getattr(one, item.name), getattr(other, item.name))
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            require_same(*pair)
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other


@given(
    net=st.one_of(perceptrons(), convolutions()),
    scheme=st.sampled_from(["int8", "int8pow2", "int4sympc", "int2wide"]),
    rule=st.sampled_from(Requantization),
)
@draw_examples(60)
def test_a_dump_gives_its_policy_back(net: Net, scheme: str, rule: Requantization) -> None:
    image = len(net.input_shape) == 3
    portable = PolicyNet(ObservationTransform(net.input_shape, image=image), net, ActionHead(HeadKind.ARGMAX))
    states = (
        np.random.default_rng(0).integers(0, 256, (30, *net.input_shape), np.uint8) if image else inputs_of(net, 30)
    )
    policy = require_integer(portable.quantize(Scheme.parse(scheme), states))
    policy = IntegerPolicy(policy.transform, policy.net.with_requantization(rule), policy.head)
    files = write_dump(policy)
    assert files == write_dump(policy)
    for left_out in (RAW, ARRAYS):
        require_same(read_dump({name: data for name, data in files.items() if name != left_out}), policy)


@pytest.mark.parametrize("kind", HeadKind)
@pytest.mark.parametrize("normalized", [False, True])
def test_both_ends_are_in_the_dump(kind: HeadKind, normalized: bool) -> None:
    policy = quantize(make_policy(kind, normalized=normalized))
    require_same(read_dump(write_dump(policy)), policy)


def test_multiplier_and_shift_are_the_scale() -> None:
    policy = quantize(make_policy(), "int8pc")
    with np.load(__import__("io").BytesIO(write_dump(policy)[ARRAYS])) as arrays:
        for index in range(2):
            multiplier, shift = arrays[f"layers.{index}.multiplier"], arrays[f"layers.{index}.shift"]
            assert ((multiplier >= 1 << 23) & (multiplier < 1 << 24)).all()
            source = policy.net.input if index == 0 else policy.net.layers[0].result
            layer = policy.net.layers[index]
            scale = (source.scale * layer.weight_scale) / layer.output.scale
            np.testing.assert_array_equal(np.ldexp(multiplier.astype(np.float64), -shift), scale.astype(np.float64))


def test_a_dump_is_an_artefact(tmp_path: Path) -> None:
    policy = quantize(make_policy(HeadKind.TANH))
    export_policy(policy, tmp_path / "a", STATES, scheme="int8", source_sha256="0" * 64, backend="dump")
    deployed = load_artefact(tmp_path / "a")
    assert verify(deployed) > 100
    np.testing.assert_array_equal(deployed.act(STATES), policy.act(STATES))
    with pytest.raises(DeploymentError, match="dump: it holds integers, and this policy computes in float32"):
        export_policy(make_policy(), tmp_path / "b", STATES, scheme="fp32", source_sha256="0" * 64, backend="dump")


def test_damage_is_refused_by_name() -> None:
    files = write_dump(quantize(make_policy()))
    description = json.loads(files[DESCRIPTION])
    cases = [
        (files | {ARRAYS: files[ARRAYS][:-9]}, "sha256 of model.npz"),
        ({RAW: files[RAW] + b"x", DESCRIPTION: files[DESCRIPTION]}, "sha256 of model.bin"),
        ({ARRAYS: files[ARRAYS]}, "model.json"),
        (files | {DESCRIPTION: b"{"}, "ill-formed"),
        (files | {DESCRIPTION: json.dumps(description | {"schema_version": 9}).encode()}, "schema_version"),
    ]
    layer = description["architecture"]["layers"][0]
    layer["output"]["scale"] *= 2
    cases.append((files | {DESCRIPTION: json.dumps(description).encode()}, "layers.0.shift does not follow"))
    for damaged, match in cases:
        with pytest.raises(DeploymentError, match=match) as caught:
            read_dump(damaged)
        assert "\n" not in str(caught.value)
