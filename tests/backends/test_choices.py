"""Policies of several choices, and of bits, in every backend: the artefact's outputs, the head's actions, and masks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import MultiDiscrete

from quarl_bench.backends.deployed import load_artefact, verify
from quarl_bench.backends.export import export_policy
from quarl_bench.backends.fpga.rtl.table import ActionTable
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import DeploymentError
from quarl_bench.experiments.environment_source import resolve_environment
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.masks import add_masks
from quarl_bench.policies.policy import PolicyNet, deployable
from quarl_bench.prove.executors import ProofSubject
from quarl_bench.prove.proof import prove
from quarl_bench.quantization.scheme import Scheme
from tests.support.choices import ByMethod, draw_masks
from tests.support.strategies import make_policy, normal

RNG = np.random.default_rng(0)
STATES = normal(RNG, 300, 4, spread=2.0)
BACKENDS = [
    pytest.param("litert", marks=pytest.mark.needs("litert")),
    pytest.param("onnx", marks=pytest.mark.needs("onnx")),
    pytest.param("c", marks=pytest.mark.needs("cc")),
    "dump",
]


def make(kind: HeadKind) -> tuple[PolicyNet, Any]:
    """A policy, and states with masks of it."""
    plain = make_policy(kind, normalized=True)
    policy = replace(plain, head=replace(plain.head, masked=True))
    sizes = policy.head.list_choices(policy.net.outputs)
    return policy, add_masks(STATES, draw_masks(RNG, len(STATES), sizes))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scheme", ["fp32", "int8", "int8acc"])
@pytest.mark.parametrize("kind", [HeadKind.PARTS, HeadKind.BITS])
def test_an_artefact_acts_as_its_policy(kind: HeadKind, scheme: str, backend: str, tmp_path: Path) -> None:
    if (backend, scheme) == ("dump", "fp32"):
        pytest.skip("the dump is of integers")
    policy, states = make(kind)
    played = deployable(policy.quantize(Scheme.parse(scheme), states))
    folder = tmp_path / "artefact"
    export_policy(played, folder, states, scheme=scheme, source_sha256="0" * 64, backend=backend)
    deployed = load_artefact(folder)
    assert verify(deployed) == len(deployed.artefact.golden.actions)
    assert deployed.artefact.golden.actions.shape[1:] == (2,)
    assert deployed.head.masked
    for observations in (STATES, states):
        np.testing.assert_array_equal(deployed.act(observations), played.act(observations))


@pytest.mark.needs("onnx")
def test_a_proof_plays_within_masks(tmp_path: Path) -> None:
    policy, states = make(HeadKind.PARTS)
    task: Environment = resolve_environment(lambda: ByMethod(MultiDiscrete([2, 3])))
    integers: Any = deployable(policy.quantize(Scheme.parse("int8"), states))
    subject = ProofSubject(integers, "int8", "0" * 64, states, tmp_path)
    rows = list(prove(subject, task, range(3), ["onnx"]))
    assert [row.reason or row.divergence for row in rows] == ["", ""]
    assert rows[0].sha256 == rows[1].sha256


def test_an_fpga_has_no_table_of_indices() -> None:
    policy, states = make(HeadKind.BITS)
    integers: Any = deployable(policy.quantize(Scheme.parse("int8"), states))
    with pytest.raises(DeploymentError, match="has no table of actions; leave --tanh out"):
        ActionTable.from_policy(integers)
