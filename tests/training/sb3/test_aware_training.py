"""Quantization-aware runs from the recipe to the case: delay, curve, checkpoints, stores, cells."""

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import MissingBaseline, SpecError, StoreError
from quarl_bench.evaluation.exploration import collect_random_states, measure_variance
from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths, Train
from quarl_bench.judging.claim import JudgedClaim
from quarl_bench.papers.registry import read_catalog
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.policies.storage.folder import load_stored
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.policies.storage.integers import StoredIntegers
from quarl_bench.spec import Case, PolicySpec
from quarl_bench.system.interruption import Interrupted
from quarl_bench.training.recipes import AWARE, find_recipe
from quarl_bench.training.sb3.run import TrainingOptions
from quarl_bench.training.schemes import train_schemes
from tests.support.sizes import choose
from tests.support.stores import make_policy
from tests.support.training import Run, few_episodes, make_recipe  # noqa: F401 (a fixture)

SCHEME = "qat4"


def begin(folder, algo="ppo", scheme=SCHEME, delay=None, **changes):
    return Run(folder, make_recipe(algo, **changes).train_aware(scheme, delay))


def test_a_run_watches_then_rounds_and_publishes_integers(tmp_path):
    run = begin(tmp_path)
    stored = run.start()
    loaded = load_stored(run.folder)
    assert isinstance(loaded, StoredIntegers)
    assert isinstance(loaded.policy, IntegerPolicy)
    assert loaded.sha256 == stored.sha256
    assert loaded.policy.net.layers[0].weight_format.bit_width == 4
    curve = loaded.metadata["curve"]
    assert [point.get("quantized", False) for point in curve] == [point["timesteps"] >= 256 for point in curve]
    assert loaded.metadata["recipe"]["quant_delay"] == 256
    assert loaded.metadata["recipe"]["scheme"] == SCHEME
    assert loaded.metadata["selection"]["timesteps"] >= 256


def test_until_the_delay_it_is_the_fp32_run(tmp_path):
    aware = begin(tmp_path / "aware").start().metadata["curve"]
    plain = Run(tmp_path / "plain", make_recipe()).start().metadata["curve"]
    assert aware[0] == plain[0]
    assert aware[-1] != plain[-1]


@pytest.mark.parametrize("algo", ["dqn", "ddpg"])
def test_off_policy_runs_end_in_integers_too(tmp_path, algo):
    stored = begin(tmp_path, algo).start()
    assert isinstance(stored.policy, IntegerPolicy)
    assert stored.metadata["curve"][-1]["quantized"]


@pytest.mark.parametrize("stop", [2, 7])
def test_a_run_goes_on_before_and_behind_the_delay(tmp_path, stop):
    run = begin(tmp_path)
    state = run.interrupt(stop)
    assert bool(state["curve"][-1].get("quantized")) == (stop == 7)
    stored = run.start(resume=True)
    assert stored.metadata["curve"][: len(state["curve"])] == state["curve"]
    assert stored.metadata["curve"][-1]["quantized"]


def test_another_scheme_does_not_go_on_with_a_checkpoint(tmp_path):
    run = begin(tmp_path)
    run.interrupt(2)
    for recipe in (make_recipe(), make_recipe().train_aware("qat8"), make_recipe().train_aware(SCHEME, 300)):
        with pytest.raises(StoreError, match="made with another recipe"):
            run.start(recipe=recipe, resume=True)


class TestSchemes:
    """One seed under several schemes, whose runs are one run until they round."""

    def train(self, folder, *schemes, algo="ppo", **options):
        recipes = {scheme: make_recipe(algo).train_aware(scheme) for scheme in schemes}
        spec = PolicySpec(algo, make_recipe(algo).environment, 7)
        return {arm.scheme: stored for arm, stored in train_schemes(spec, recipes, folder, TrainingOptions(**options))}

    @pytest.mark.parametrize("algo", choose(["dqn"], ["ppo", "dqn", "ddpg"]))
    def test_they_share_what_they_do_in_full_precision(self, tmp_path, algo):
        trained = self.train(tmp_path, "qat8", "qat2", algo=algo)
        alone = begin(tmp_path / "alone", algo, "qat2").start().metadata["curve"]
        bits = [stored.policy.net.layers[0].weight_format.bit_width for stored in trained.values()]
        assert bits == [8, 2]
        for stored in trained.values():
            curve = stored.metadata["curve"]
            assert [point["timesteps"] for point in curve] == [point["timesteps"] for point in alone]
            for point, same in zip(curve, alone, strict=True):
                assert point.get("quantized") == same.get("quantized")
                assert point.get("quantized") or point == same
        assert {path.name for path in tmp_path.iterdir()} == {"alone"} | {
            f"{algo}-{make_recipe(algo).environment}-{scheme}-seed7" for scheme in trained
        }

    def test_policies_of_another_recipe_are_not_kept(self, tmp_path):
        self.train(tmp_path, "qat8")
        longer = {"qat8": make_recipe().train_aware("qat8", 300)}
        spec = PolicySpec("ppo", make_recipe().environment, 7)
        with pytest.raises(StoreError, match="was trained by another recipe or seed; choose another folder"):
            next(train_schemes(spec, longer, tmp_path, TrainingOptions(resume=True)))

    @pytest.mark.parametrize("after", choose((1, 7), range(1, 13, 2)))
    def test_they_go_on_wherever_they_were_stopped(self, tmp_path, after):
        asked = iter(range(1, 1000))
        with pytest.raises(Interrupted):
            self.train(tmp_path, "qat8", "qat2", should_stop=lambda: next(asked) >= after)
        with pytest.raises(StoreError, match="unfinished run; pass --resume"):
            self.train(tmp_path, "qat8", "qat2")
        trained = self.train(tmp_path, "qat8", "qat2", resume=True)
        assert [stored.metadata["recipe"]["scheme"] for stored in trained.values()] == ["qat8", "qat2"]
        for stored in trained.values():
            steps = [point["timesteps"] for point in stored.metadata["curve"]]
            assert steps == sorted(set(steps))
            assert steps[-1] == 512
        assert len(list(tmp_path.iterdir())) == 2

    def test_policies_that_are_there_are_kept(self, tmp_path):
        first = self.train(tmp_path, "qat8")
        later = self.train(tmp_path, "qat8", "qat4", resume=True)
        assert later["qat8"].sha256 == first["qat8"].sha256
        assert later["qat4"].metadata["curve"][0] == first["qat8"].metadata["curve"][0]


@pytest.mark.parametrize(("scheme", "delay", "said"), [
    ("qat4", 512, "quant_delay 512: the run has 512 steps"),
    ("qat4", 100_000, "quant_delay 100,000"),
    ("qat4", 0, "quant_delay 0"),
    ("w4", None, "train with one of qat2..qat8"),
    ("qat9", None, "2..8 bits"),
])  # fmt: skip
def test_recipes_refuse_what_never_quantizes(scheme, delay, said):
    with pytest.raises(SpecError, match=said):
        make_recipe().train_aware(scheme, delay)


def test_a_delay_behind_the_last_rollout_is_refused(tmp_path):
    with pytest.raises(SpecError, match="no rollout began behind it"):
        begin(tmp_path, delay=500).start()


def test_recipes_of_the_catalog_wait_for_half_of_their_steps():
    recipe = find_recipe("ppo", "cartpole", scheme="qat2")
    assert (recipe.scheme, recipe.quant_delay) == ("qat2", recipe.timesteps // 2)
    plain = find_recipe("ppo", "cartpole")
    assert len({plain.sha256, recipe.sha256, find_recipe("ppo", "cartpole", scheme="qat4").sha256}) == 3


class TestCells:
    """Trained schemes in stores and cases."""

    def train(self, tmp_path, seeds):
        for seed in seeds:
            run = begin(tmp_path / f"run{seed}")
            run.folder = tmp_path / "baselines" / "policies" / PolicySpec("ppo", "cartpole", seed, "", SCHEME).name
            run.start()

    def make_cells(self, tmp_path):
        return Cells(
            Store(StorePaths(tmp_path / "cache", tmp_path / "baselines")), Protocol(3, 4), tmp_path / "artefacts"
        )

    def test_a_trained_cell_is_paired_with_fp32_policies_of_its_seeds(self, tmp_path):
        self.train(tmp_path, [0, 1])
        for seed in range(3):
            save_policy(make_policy(seed), tmp_path / "baselines" / "policies" / f"ppo-cartpole-seed{seed}", {})
        cells, case = self.make_cells(tmp_path), Case("ppo", "cartpole", SCHEME)
        policies = cells.find_policies(case)
        assert len(policies.members) == 2
        trained = cells.quantize(policies, SCHEME)
        assert all(isinstance(policy, IntegerPolicy) for policy in trained.policies)
        measured, reference = cells.measure(trained), cells.measure(policies)
        assert measured.agreement is None
        assert (measured.environment_seeds, len(measured.returns)) == (reference.environment_seeds, 2)

    @pytest.mark.needs("litert")
    def test_eight_bits_deploy(self, tmp_path):
        run = begin(tmp_path, scheme="qat8")
        run.folder = tmp_path / "baselines" / "policies" / "ppo-cartpole-qat8-seed0"
        run.start()
        save_policy(make_policy(), tmp_path / "baselines" / "policies" / "ppo-cartpole-seed0", {})
        cells = self.make_cells(tmp_path)
        trained = cells.quantize(cells.find_policies(Case("ppo", "cartpole", "qat8")), "qat8")
        states = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
        deployed = cells.deploy(trained).policies[0]
        assert np.array_equal(deployed.act(states), trained.policies[0].act(states))

    def test_one_trained_for_other_steps_is_compared_with_fp32_of_as_many(self, tmp_path, monkeypatch):
        self.train(tmp_path, [0])
        folder, longer = tmp_path / "baselines" / "policies", {"recipe": {"timesteps": 1_000_000_000}}
        save_policy(make_policy(0), folder / "ppo-cartpole-seed0", longer)
        cells, case = self.make_cells(tmp_path), Case("ppo", "cartpole", SCHEME)
        with pytest.raises(StoreError, match="train all for as many"):
            cells.quantize(cells.find_policies(case), SCHEME)
        monkeypatch.setattr("quarl_bench.experiments.cells.name_reference", lambda *_: AWARE)
        with pytest.raises(MissingBaseline, match="no baseline for ppo-cartpole-aware-seed0"):
            cells.find_policies(case)
        save_policy(make_policy(1), folder / "ppo-cartpole-aware-seed0", {})
        policies = cells.find_policies(case)
        trained = cells.quantize(policies, SCHEME)
        assert (policies.case, trained.case) == (Case("ppo", "cartpole", "fp32", AWARE), case)
        assert cells.find_policies(Case("ppo", "cartpole", "int8")).case.origin == ""

    def test_a_missing_one_says_how_to_train_it(self, tmp_path):
        save_policy(make_policy(), tmp_path / "baselines" / "policies" / "ppo-cartpole-seed0", {})
        cells = self.make_cells(tmp_path)
        with pytest.raises(MissingBaseline, match="quarl train ppo cartpole --seed 0 --scheme qat4"):
            cells.quantize(cells.find_policies(Case("ppo", "cartpole", SCHEME)), SCHEME)

    def test_a_sentence_over_cells_of_which_one_lacks_it_lists_that_one(self, tmp_path):
        self.train(tmp_path, [0])
        for environment in ("cartpole", "acrobot"):
            save_policy(make_policy(), tmp_path / "baselines" / "policies" / f"ppo-{environment}-seed0", {})
        claim = next(claim for claim in read_catalog() if claim.id == "figure2-drops")
        cases = (Case("ppo", "cartpole", SCHEME), Case("ppo", "acrobot", SCHEME))
        item = JudgedClaim(claim, "all", SCHEME, cases)
        found = claim.judgement.collect(self.make_cells(tmp_path), item)
        assert list(found.measurements) == [cases[0].id]
        assert found.missing == (cases[1].id,)

    def test_forms_are_not_mixed_up(self, tmp_path):
        self.train(tmp_path, [0])
        store = Store(StorePaths(tmp_path / "cache", tmp_path / "baselines"))
        spec = PolicySpec("ppo", "cartpole", 0, "", SCHEME)
        assert store.integers(spec).policy.net.outputs == 2
        with pytest.raises(StoreError, match="holds integers"):
            store.policy(spec)

    def test_the_store_trains_what_is_missing(self, tmp_path):
        asked = []

        def trainer(spec, recipe, folder, checkpoint):
            asked.append((spec.name, recipe.scheme))
            return begin(tmp_path / "elsewhere").start()

        store = Store(StorePaths(tmp_path / "cache"), Train.MISSING, trainer=trainer)
        store.integers(PolicySpec("ppo", "cartpole", 0, "", SCHEME))
        assert asked == [("ppo-cartpole-qat4-seed0", SCHEME)]


def test_the_variance_of_action_probabilities(tmp_path):
    curve = begin(tmp_path).start().metadata["curve"]
    assert all(0 <= point["variance"][kind] <= 0.25 for point in curve for kind in ("fixed", "visited"))
    cartpole, policy = find_environment("cartpole"), make_policy()
    states = collect_random_states(policy, cartpole)
    assert np.array_equal(states, collect_random_states(make_policy(5), cartpole))
    assert measure_variance(policy, states * 0) == pytest.approx(0.0)  # no bias: equal logits
    assert measure_variance(policy, states * 1e6) == pytest.approx(0.25, abs=0.01)  # one action is certain
