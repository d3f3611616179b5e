"""Our own runs, found in the store as LQCC's sentences ask for them."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.errors import MissingBaseline, StoreError
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths
from quarl_bench.papers.lqcc.arms import average_curves
from quarl_bench.papers.lqcc.runs.own import Runs, read_curves
from quarl_bench.papers.lqcc.selection import Configuration
from quarl_bench.papers.lqcc.sentences import judge_parity, judge_selected
from quarl_bench.spec import Case, Outcome, PolicySpec
from quarl_bench.training.multi_seed import train
from quarl_bench.training.multi_seed.recipe import find_recipe
from quarl_bench.training.sb3 import run as rl_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two fp32 policies and two with a core of 3 bits, of a few steps of Pendulum."""
    folder = tmp_path_factory.mktemp("trained")
    recipe = find_recipe("sac").override(timesteps=80, learning_starts=40, width=8, batch=8)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(train, "CURVE_EPISODES", 2)
        monkeypatch.setattr(train, "CURVE_POINTS", 4)
        monkeypatch.setattr(train, "EXPORT_STATES", 200)
        monkeypatch.setattr(rl_run, "SCORE_EPISODES", 2)
        for scheme in ("fp32", "i8c3o8"):
            train.train_seeds(recipe.quantize(scheme), "pendulum", (0, 1), folder)
    return folder


@pytest.fixture
def cells(tmp_path, trained):
    """A store with these, for one test."""
    shutil.copytree(trained, tmp_path / "baselines" / "policies")
    return Cells(
        Store(StorePaths(tmp_path / "cache", tmp_path / "baselines")), Protocol(policies=2, episodes=3), tmp_path
    )


def test_what_was_trained_is_found_and_the_rest_is_missing(cells):
    runs = Runs(cells)
    tasks = runs.find("sac", ["pendulum", "hopperv4"], "lqcc")
    reference, find = tasks["pendulum"]
    assert reference.shape == find(Configuration(3)).shape == (2,)
    assert not np.array_equal(reference, find(Configuration(3)))
    assert find(Configuration(2)) is None
    assert tasks["hopperv4"][0].size == 0
    verdict = judge_parity({"pendulum": tasks["pendulum"]}, "core", (2, 3), 0.8)
    assert (verdict.outcome, verdict.missing) == (Outcome.PARTIAL, ("pendulum: i8c2o8",))
    some = judge_selected(tasks, dict.fromkeys(tasks, Configuration(3)), 0.8)
    assert some.missing == ("hopperv4: fp32", "hopperv4: i8c3o8")
    assert some.policies == 2
    fp32 = [stored.stored.sha256 for stored in cells.find_policies(Case("sac", "pendulum", "fp32", "lqcc")).members]
    assert runs.policies["sac-pendulum-fp32-lqcc"] == fp32
    assert len(set(fp32 + runs.policies["sac-pendulum-i8c3o8-lqcc"])) == 4, "the hashes of two arms"


def test_a_configuration_without_fp32_is_found_and_only_fp32_is_missing(cells):
    for seed in range(2):
        shutil.rmtree(cells.store.places.baselines / "policies" / f"sac-pendulum-lqcc-seed{seed}")
    runs = Runs(cells)
    tasks = runs.find("sac", ["pendulum"], "lqcc")
    assert tasks["pendulum"][1](Configuration(3)).shape == (2,)
    assert judge_selected(tasks, {"pendulum": Configuration(3)}, 0.8).missing == ("pendulum: fp32",)


def test_seeds_need_not_begin_at_0_and_are_paired(cells):
    policies = cells.store.places.baselines / "policies"
    (policies / "sac-pendulum-lqcc-seed0").rename(policies / "sac-pendulum-lqcc-seed7")
    (policies / "sac-pendulum-i8c3o8-lqcc-seed0").rename(policies / "sac-pendulum-i8c3o8-lqcc-seed3")
    spec = PolicySpec("sac", "pendulum", 0, "lqcc")
    assert cells.store.find_seeds(spec) == (1, 7)
    assert cells.store.find_seeds(replace(spec, scheme="i8c3o8")) == (1, 3)
    assert cells.store.find_seeds(replace(spec, environment="acrobot")) == ()
    case = Case("sac", "pendulum", "i8c3o8", "lqcc")
    fp32 = cells.find_policies(case)
    assert [member.stored.metadata["seed"] for member in fp32.members] == [1], "the one that both have"
    assert [member.stored.metadata["seed"] for member in cells.quantize(fp32, "i8c3o8").members] == [1]
    assert len(cells.find_policies(replace(case, scheme="fp32")).members) == 2


def test_fp32_of_another_origin_and_training_is_refused(cells):
    policies = cells.store.places.baselines / "policies"
    for seed in range(2):
        raw = policies / f"sac-pendulum-lqccraw-seed{seed}"
        (policies / f"sac-pendulum-lqcc-seed{seed}").rename(raw)
        manifest = json.loads((raw / "manifest.json").read_text())
        manifest["recipe"]["timesteps"] = 1000
        (raw / "manifest.json").write_text(json.dumps(manifest))
    reference, find = Runs(cells).find("sac", ["pendulum"], "lqcc", "lqccraw")["pendulum"]
    assert reference.shape == (2,)
    with pytest.raises(StoreError, match="80 and 1,000 environment steps"):
        find(Configuration(3))


def test_learning_curves_begin_where_learning_does(cells):
    arm = Runs(cells).find_arm(Case("sac", "pendulum", "i8c3o8", "lqcc"))
    curves = read_curves(arm)
    assert [[point["timesteps"] for point in curve] for curve in curves] == [[60, 80]] * 2
    assert average_curves(curves, "x").shape == (2,)
    assert Runs(cells).find_arm(Case("sac", "pendulum", "fp32", "lqccbf16")) is None


def test_what_is_missing_says_how_it_is_trained(tmp_path):
    store = Store(StorePaths(tmp_path))
    with pytest.raises(MissingBaseline, match="`quarl train sac antv4 --seeds LIST --output FOLDER/policies`"):
        store.policy(PolicySpec("sac", "antv4", 0, "lqcc"))
    with pytest.raises(MissingBaseline, match="--seeds LIST --scheme i3c2o8h64 --output"):
        store.integers(PolicySpec("sac", "antv4", 0, "lqcc", "i3c2o8h64"))
