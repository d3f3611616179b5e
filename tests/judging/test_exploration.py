"""Exploration: what curves state, what the claims make of them, and the arm with layer normalization."""

import math
from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import QuantizationError, SpecError
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths, Train
from quarl_bench.judging.claim import over
from quarl_bench.judging.exploration import compare_arms, compare_delays, order_arms, read_arm
from quarl_bench.judging.rules.training import Flatter
from quarl_bench.policies.sources.sb3.model import extract
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.report.rows.builder import build_row, show_cells
from quarl_bench.spec import Outcome
from quarl_bench.training.recipes import find_recipe
from quarl_bench.training.sb3.models import make_model
from quarl_bench.training.sb3.vector import make_vector
from tests.support.claims import make_item
from tests.support.stores import make_policy
from tests.support.training import Run, few_episodes, make_recipe  # noqa: F401 (a fixture)


def make_manifest(variances, *, of="probabilities", delay=0):
    curve = [
        {"timesteps": 10 * (i + 1), "mean": float(i), "variance": {"of": of, "fixed": value, "visited": value}}
        for i, value in enumerate(variances)
    ]
    return {"curve": curve, "recipe": {"quant_delay": delay}}


def make_arm(*rows, **options):
    return read_arm([make_manifest(row, **options) for row in rows], "arm")


def find_ratio(*arms):
    return math.exp(np.mean(compare_arms(*arms)))


def test_arms_are_compared_behind_the_delay_seed_by_seed():
    plain, flat = make_arm([9, 9, 0.4, 0.4], [9, 9, 0.2, 0.2]), make_arm([1, 1, 0.1, 0.1], [1, 1, 0.1, 0.1], delay=20)
    assert find_ratio(plain, flat, "fixed") == pytest.approx(math.sqrt(4 * 2))
    assert find_ratio(plain, plain, "visited") == pytest.approx(1.0)


def test_what_was_there_before_the_delay_is_taken_out():
    plain, flat = make_arm([0.8, 0.8, 0.4, 0.4]), make_arm([0.4, 0.4, 0.1, 0.1], delay=20)
    assert math.exp(np.mean(compare_delays(plain, flat, "fixed"))) == pytest.approx(4 / 2)
    with pytest.raises(SpecError, match="no point between steps 0 and 5;"):
        compare_delays(plain, make_arm([1, 1], delay=5), "fixed")


def test_an_arm_that_never_rounds_is_compared_over_its_second_half():
    plain, normed = make_arm([9, 9, 0.4, 0.4]), make_arm([1, 1, 0.1, 0.1])
    assert find_ratio(plain, normed, "fixed") == pytest.approx(4.0)


def test_a_wide_gaussian_explores():
    narrow, wide = make_arm([0.1, 0.1], of="actions"), make_arm([0.4, 0.4], of="actions")
    assert find_ratio(narrow, wide, "fixed") == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("variances", "tau"), [((0.1, 0.2, 0.3), 1.0), ((0.3, 0.2, 0.1), -1.0), ((0.1, 0.3, 0.2), 1 / 3)]
)
def test_orders_are_kendalls(variances, tau):
    arms = {bits: make_arm([v, v]) for bits, v in zip((2, 4, 32), variances, strict=True)}
    assert np.mean(order_arms(arms, "fixed")) == pytest.approx(tau)


@pytest.mark.parametrize("about", [{}, {"curve": []}, {"curve": [{"timesteps": 1, "mean": 0.0}]}])
def test_curves_without_a_variance_are_refused(about):
    with pytest.raises(SpecError, match="state no variance"):
        read_arm([about], "ppo-cartpole")
    with_one = [make_manifest([0.4] * 4), about, make_manifest([0.1] * 4)]
    assert len(read_arm(with_one, "ppo-cartpole").curves) == 1  # later ones pair with no other arm's


def test_cells_come_from_the_manifests_and_missing_ones_are_named(tmp_path):
    cells, flatter = over("ppo", "cartpole acrobot"), Flatter(0.05, "fixed")
    judged = make_item(flatter, schemes=("fp32",), origin="layernorm", pooled=True, cells=cells)
    assert judged.id == "all-x-fp32"
    for name, value in (("ppo-cartpole-seed0", 0.4), ("ppo-cartpole-layernorm-seed0", 0.1)):
        save_policy(make_policy(), tmp_path / "policies" / name, make_manifest([value] * 4))
    later = {
        "ppo-cartpole-seed1": {"recipe": {}, "curve": []},
        "ppo-cartpole-layernorm-seed1": make_manifest([1.0] * 4),
    }
    for name, about in later.items():  # fp32's is of a version that stated no variance
        save_policy(make_policy(), tmp_path / "policies" / name, about)
    store = Store(StorePaths(tmp_path / "cache", tmp_path), Train.NEVER)
    found = flatter.collect(Cells(store, Protocol(1, 2), tmp_path), judged)
    assert found.ratios == {"ppo-cartpole": pytest.approx(4.0)}
    assert set(found.curves["ppo-cartpole"]) == {"fp32", "layernorm"}
    assert found.missing == ("ppo-acrobot-fp32-layernorm", "ppo-acrobot-fp32")
    verdict = flatter.decide(judged, found)
    assert verdict.outcome is Outcome.PARTIAL
    assert build_row(judged, verdict, **show_cells(found)).curves == found.curves


def make_normed(**changes):
    recipe = make_recipe(layer_norm=True, **changes)
    return make_model(recipe, make_vector(find_environment(recipe.environment), 2, 0), 0)


def test_a_normed_policy_is_extracted_exactly():
    model = make_normed()
    policy = extract(model)
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    assert (policy.act(observations) == model.predict(observations, deterministic=True)[0]).all()
    assert [layer.norm is not None for layer in policy.net.layers] == [True, False]
    assert policy.net.parameters == 4 * 8 + 8 + 8 * 2 + 2 + 2 * 8


def test_norms_survive_the_file_and_quantized_weights_but_not_integers(tmp_path):
    run = Run(tmp_path, make_recipe(layer_norm=True))
    stored = run.start()
    loaded = load_stored(run.folder)
    observations = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    assert (loaded.policy.outputs(observations) == stored.policy.outputs(observations)).all()
    rounded = stored.policy.quantize(Scheme.parse("w8"), None)
    assert np.abs(rounded.outputs(observations) - stored.policy.outputs(observations)).max() < 0.5
    with pytest.raises(QuantizationError, match="layer 0 is followed by a layer normalization"):
        stored.policy.quantize(Scheme.parse("int8"), observations)


@pytest.mark.parametrize("changes", [{"algo": "dqn"}, {"scheme": "qat4"}])
def test_only_fp32_perceptrons_of_actor_critics_are_normed(changes):
    with pytest.raises(SpecError, match="layer_norm is for fp32 perceptrons"):
        make_normed(**changes)


def test_gaussian_curves_state_the_variance_of_actions(tmp_path):
    recipe = replace(make_recipe(), environment="mountaincarcontinuous")
    stored = Run(tmp_path, recipe).start()
    assert {point["variance"]["of"] for point in stored.metadata["curve"]} == {"actions"}
    assert all(point["variance"]["fixed"] > 0 for point in stored.metadata["curve"])


@pytest.mark.parametrize("algo", ["a2c", "ppo"])
def test_the_arm_differs_from_its_recipe_in_the_norm_only(algo):
    plain, normed = find_recipe(algo, "cartpole"), find_recipe(algo, "cartpole", "layernorm")
    assert normed.layer_norm
    assert (normed.hyperparameters, normed.timesteps) == (plain.hyperparameters, plain.timesteps)
    assert normed.sha256 != plain.sha256


def test_a_normed_policy_plays():
    policy = extract(make_normed())
    assert roll_out(policy, find_environment("cartpole"), range(4)).returns.shape == (4,)
