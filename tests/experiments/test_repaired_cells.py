"""Cells under a repaired scheme: the repaired form where one is kept, the plain one elsewhere, each against fp32."""

import shutil

import numpy as np
import pytest

from quarl_bench.errors import MissingBaseline, QuantizationError, SpecError, StoreError
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.policies.policy import require_integer
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.policies.storage.integers import save_integers
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.spec import Case
from tests.support.strategies import make_policy, normal

REPAIRED = "int8repaired"
STATES = normal(np.random.default_rng(0), 200, 4)


@pytest.fixture
def repaired(tmp_path):
    """Two policies of a cell; the second has a repaired form."""
    for seed in range(2):
        stored = save_policy(
            make_policy(seed=seed), tmp_path / "baselines" / "policies" / f"ppo-cartpole-seed{seed}", {"seed": seed}
        )
    integers = require_integer(make_policy(seed=1).quantize(Scheme.parse("int8pc"), STATES))
    folder = tmp_path / "baselines" / "repaired" / "ppo-cartpole-seed1-int8"
    return save_integers(integers, folder, {"quantization": {"source_sha256": stored.sha256}})


@pytest.fixture
def cells(tmp_path):
    return Cells(Store(StorePaths(tmp_path / "cache", tmp_path / "baselines")), Protocol(1, 4), tmp_path / "artefacts")


def test_what_is_kept_plays_and_the_rest_is_plain(cells, repaired):
    policies = cells.find_policies(Case("ppo", "cartpole", REPAIRED))
    found, plain = cells.quantize(policies, REPAIRED), cells.quantize(policies, "int8")
    assert [member.stored.sha256 for member in found.members] == [policies.members[0].stored.sha256, repaired.sha256]
    measured, usual = cells.measure(found), cells.measure(plain)
    assert measured.returns[0] == usual.returns[0]
    assert len(measured.agreement) == 2  # both are compared with fp32
    assert found.case.id == "ppo-cartpole-int8repaired"


def test_a_form_of_another_policy_is_refused(cells, repaired, tmp_path):
    save_policy(make_policy(seed=7), tmp_path / "baselines" / "policies" / "ppo-cartpole-seed1", {"seed": 1})
    with pytest.raises(StoreError, match="repaired from another policy than ppo-cartpole-seed1; run `quarl repair`"):
        cells.quantize(cells.find_policies(Case("ppo", "cartpole", REPAIRED)), REPAIRED)


def test_of_few_bits_the_repaired_ones_count(cells, repaired, tmp_path):
    kept = tmp_path / "baselines" / "repaired"
    shutil.copytree(kept / "ppo-cartpole-seed1-int8", kept / "ppo-cartpole-seed1-int4")
    policies = cells.find_policies(Case("ppo", "cartpole", "int4repaired"))
    assert [member.stored.metadata["seed"] for member in policies.members] == [1]
    assert cells.quantize(policies, "int4repaired").members[0].stored.sha256 == repaired.sha256


def test_seeds_that_both_schemes_have_are_compared(cells, repaired, tmp_path):
    kept = tmp_path / "baselines"
    for seed in range(2):
        shutil.copytree(
            kept / "repaired" / "ppo-cartpole-seed1-int8", kept / "repaired" / f"ppo-cartpole-seed{seed}-int4"
        )
    case = Case("ppo", "cartpole", "int4repaired")
    save_integers(repaired.policy, kept / "policies" / "ppo-cartpole-qat4-seed1", {"seed": 1})
    assert [member.stored.metadata["seed"] for member in cells.find_policies(case, "qat4").members] == [1]
    assert len(cells.find_policies(case).members) == 2


@pytest.mark.usefixtures("repaired")
def test_fewer_bits_need_a_form_of_their_own(cells):
    policies = cells.find_policies(Case("ppo", "cartpole", "int4repaired"))
    with pytest.raises(
        MissingBaseline, match="ppo-cartpole-seed0 has no repaired int4 form; make one by `quarl repair`"
    ):
        cells.quantize(policies, "int4repaired")


def test_it_is_found_not_applied():
    with pytest.raises(QuantizationError, match="found for a policy, not applied: `quarl repair --scheme int8`"):
        make_policy().quantize(Scheme.parse(REPAIRED), STATES)
    with pytest.raises(SpecError, match="repaired stands alone"):
        Scheme.parse("int8pcrepaired")
