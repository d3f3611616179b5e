"""`quarl train`: what it writes, keeps, and refuses."""

import json
import signal
from dataclasses import replace
from unittest.mock import Mock

import pytest

from quarl_bench.errors import StoreError
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.system import processor
from quarl_bench.training import schemes as rl_train
from quarl_bench.training.multi_seed import train as lqcc_train


class TestTrain:
    def test_a_short_run(self, folder, quarl_json, quarl, monkeypatch):
        from quarl_bench.training import recipes

        original = recipes.find_recipe
        monkeypatch.setattr(recipes, "find_recipe", lambda *names: replace(original(*names), timesteps=256))
        before = signal.getsignal(signal.SIGTERM)
        (folder / "trained").mkdir()
        result = quarl_json("train", "ppo", "cartpole", "--output", "trained", "--resume")
        signal.signal(signal.SIGTERM, before)
        assert load_policy(folder / "trained").sha256 == result["sha256"]
        assert result["return"]["episodes"] > 0
        code, _, err = quarl("train", "ppo", "cartpole", "--output", "trained")
        assert (code, err) == (2, "quarl train: trained exists; pass --force to replace it, or another --output\n")
        kept = quarl_json("train", "ppo", "cartpole", "--output", "trained", "--resume")
        assert kept["sha256"] == result["sha256"]
        code, _, err = quarl("train", "ppo", "cartpole", "--seed", "1", "--output", "trained", "--resume")
        assert (code, "trained was trained by another recipe or seed" in err) == (2, True)
        code, _, err = quarl("train", "ppo", "cartpole", "--finish")
        assert (code, "--finish: pass --output too" in err) == (2, True)
        code, _, err = quarl("train", "ppo", "cartpole", "--finish", "--output", "none")
        assert (code, "none.checkpoint: no unfinished run is there; train, and stop it first" in err) == (2, True)
        code, _, err = quarl("train", "a2c", "cartpole", "--finish", "--scheme", "qat8,qat4", "--output", "none")
        assert (code, "--finish: for one policy" in err) == (2, True)
        signal.signal(signal.SIGTERM, before)

    def test_other_steps(self, folder, quarl, quarl_json, monkeypatch):
        """The recipe's own are the cache's; too few to learn from train nothing."""
        before = signal.getsignal(signal.SIGTERM)
        quarl_json("train", "a2c", "cartpole", "--steps", 400, "--output", "short")
        quarl_json("train", "a2c", "cartpole", "--steps", 400, "--scheme", "qat8,qat4", "--output", "arms")
        for name in ("short", "arms/a2c-cartpole-qat8-seed0", "arms/a2c-cartpole-qat4-seed0"):
            recipe = json.loads((folder / name / "manifest.json").read_text())["recipe"]
            assert (recipe["timesteps"], recipe.get("quant_delay")) == (400, None if name == "short" else 200)
        code, _, err = quarl("train", "a2c", "cartpole", "--steps", 400)
        assert (code, "the cache holds the recipes' own" in err) == (2, True)
        code, _, err = quarl("train", "dqn", "breakout", "--steps", 20_000, "--output", "none")
        assert (code, "20,000 steps, and learning starts after 20,000; train longer" in err) == (2, True)
        code, _, err = quarl("train", "dqn", "catcha", "--precision", "bf16", "--scheme", "qat8,qat4", "--output", "x")
        assert (code, "a scheme is trained in the recipe's own precision" in err) == (2, True)
        signal.signal(signal.SIGTERM, before)

    @pytest.mark.parametrize(("precision", "lines"), [("bf16", 2), ("fp32", 1)])
    @pytest.mark.parametrize("many", [(), ("--seeds", "0,1")])
    def test_emulated_precision_is_told(self, many, precision, lines, folder, quarl, monkeypatch):
        """Before training begins; here it ends at once, in an error."""
        monkeypatch.setattr(processor, "lacks_bf16", lambda: True)
        monkeypatch.setattr(rl_train, "train_policy", Mock(side_effect=StoreError("no")))
        monkeypatch.setattr(lqcc_train, "train_seeds", Mock(side_effect=StoreError("no")))
        subject = ("sac", "pendulum") if many else ("dqn", "catcha")
        code, _, err = quarl("train", *subject, *many, "--precision", precision, "--output", "there")
        assert (code, err.count("\n"), "no bf16 instructions" in err) == (2, lines, lines == 2)

    @pytest.mark.parametrize("many", [(), ("--seeds", "0")])
    def test_force_replaces_policies_alone(self, many, folder, quarl):
        """Said before anything is trained."""
        theirs = folder / "there" / ("sac-pendulum-lqcc-seed0" if many else "thesis")
        theirs.mkdir(parents=True)
        (theirs / "manifest.json").touch()
        place = "there" if many else theirs
        subject = ("sac", "pendulum") if many else ("ppo", "cartpole")
        code, _, err = quarl("train", *subject, *many, "--output", place, "--force")
        assert (code, "exists and holds no policy.safetensors" in err, err.count("\n")) == (2, True, 1), err
        assert (theirs / "manifest.json").exists()

    def test_unknown_names(self, folder, quarl):
        assert quarl("train", "ppq", "cartpole")[0] == 2
        code, _, err = quarl("train", "ppo", "cartpool")
        assert code == 2
        assert "cartpool" in err

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--scheme", "qat8,qat4"), "pass --output, the folder of the policies' folders"),
            (("--scheme", "qat8,qat9", "--output", "there"), "2..8 bits"),
            (("--scheme", "qat8,int4", "--output", "there"), "train with one of qat2..qat8"),
            (("--scheme", "qat8,", "--output", "there"), "'' cannot share steps; train with one of qat2..qat8"),
            (("--scheme", "qat8,i8c3o8", "--output", "there"), "'i8c3o8' cannot share steps"),
            (("--scheme", "qat8,qat4", "--output", "there", "--force"), "qat4-seed0 exists and holds no policy"),
            (("--scheme", "qat8,qat4", "--output", "there"), "ppo-cartpole-qat4-seed0 exists; pass --force"),
        ],
    )
    def test_several_schemes_go_to_one_folder(self, arguments, reason, quarl, folder):
        (folder / "there" / "ppo-cartpole-qat4-seed0" / "thesis").mkdir(parents=True)
        code, _, err = quarl("train", "ppo", "cartpole", *arguments)
        assert code == 2
        assert reason in err
        assert err.count("\n") == 1


def test_many_seeds_options_are_refused_for_several_schemes(folder, quarl):
    for option in (("--width", 16), ("--raw",)):
        code, _, err = quarl("train", "ppo", "cartpole", "--scheme", "qat8,qat4", "--output", "arms", *option)
        assert (code, "pass --seeds too" in err) == (2, True)


def test_a_seed_is_one_of_numpys(quarl):
    code, _, err = quarl("train", "ppo", "cartpole", "--seed", 2**32)
    assert (code, "'4294967296' is too large; give at most 4294967295" in err) == (2, True)
