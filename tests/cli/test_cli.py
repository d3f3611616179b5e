"""`quarl`: every command, its exit codes, and what it says when the input is wrong."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest

from quarl_bench import cli
from quarl_bench.cli import commands as registry
from quarl_bench.cli import main
from quarl_bench.cli.arguments import read_bits
from quarl_bench.cli.commands.sweep import find_sweet_spots, list_schemes
from quarl_bench.errors import PolicyError, StoreError
from quarl_bench.evaluation.state_agreement import compare_states
from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system import processor
from quarl_bench.training import schemes as rl_train
from quarl_bench.training.multi_seed import train as lqcc_train
from tests.support.strategies import make_linear_policy, make_policy

COMMANDS = ("train", "quantize", "evaluate", "sweep", "weights", "deploy", "report", "select", "actorq", "grid")
STOPPING = ("train", "select", "actorq", "grid")  # at a checkpoint
BALANCER = make_linear_policy(np.outer([-1.0, 1.0], [0.02, 0.2, 1.0, 0.6]))  # 500 steps of CartPole
ABOUT = {"algo": "ppo", "environment": "CartPole-v1", "seed": 0, "origin": "made by hand"}
NOWHERE = "neither such a path nor a baseline of that name in baselines/policies; check it"
PROCESS = [sys.executable, "-m", "quarl_bench.cli"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A policy on disk, in a working folder with a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    save_policy(BALANCER, tmp_path / "policy", ABOUT)
    return tmp_path


@pytest.fixture
def quarl(capsys):
    """Run a command; exit code, standard output, standard error."""

    def run(*arguments):
        try:
            code = cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:  # argparse's way out
            code = stop.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out, captured.err

    return run


@pytest.fixture
def quarl_json(quarl):
    """Run a command with --json that has to succeed."""

    def run(*arguments):
        code, out, err = quarl(*arguments, "--json")
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    return run


def ask_for_help(*arguments, modules):
    """What a fresh process prints, and behind it the list of loaded modules that the expression `modules` keeps."""
    code = (
        "import sys, quarl_bench.cli as c\n"
        f"try: c.main([*{arguments!r}, '--help'])\n"
        "except SystemExit: pass\n"
        f"print([m for m in {modules}])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_help_costs_no_heavy_import():
    heavy = ("torch", "numpy", "matplotlib", "jinja2", "tqdm", "safetensors")
    assert ask_for_help("sweep", modules=f"{heavy!r} if m in sys.modules").endswith("[]\n")


def test_help_imports_no_command_and_lists_each_in_its_own_words(quarl):
    out = ask_for_help(modules="sys.modules if m.startswith('quarl_bench.cli.commands.')")
    assert out.endswith("[]\n")
    helped, whole = " ".join(out.split()), cli._build_parser().format_help()
    assert helped == " ".join([*whole.split(), "[]"])
    for name, command in registry.COMMANDS.items():
        assert command.help in helped
        assert command.help in " ".join(quarl(name, "--help")[1].split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_states_its_default_and_every_command_an_example(command, quarl):
    code, out, _ = quarl(command, "--help")
    assert code == 0
    assert f"quarl {command}" in out.partition("example: ")[2]
    assert "exit codes: 0 done, 2 wrong input" in out
    assert ("3 stopped at a checkpoint" in out) == (command in STOPPING)
    (commands,) = (action for action in cli._build_parser()._actions if isinstance(action.choices, dict))
    for action in commands.choices[command]._actions:
        if action.option_strings and action.dest != "help":
            assert "Default: " in action.help, action.option_strings


def test_the_installed_command_is_this_one(folder):
    run = subprocess.run([*PROCESS, "weights", "policy", "--json"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads(run.stdout)["kind"] == "weights"
    run = subprocess.run([*PROCESS, "weights", "nowhere"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith(f"quarl weights: nowhere: {NOWHERE}")
    assert run.stderr.count("\n") == 1
    assert subprocess.run([*PROCESS], capture_output=True, check=False).returncode == 0


class TestTrain:
    def test_a_short_run(self, folder, quarl_json, quarl, monkeypatch):
        from quarl_bench.training import recipes

        original = recipes.find_recipe
        monkeypatch.setattr(recipes, "find_recipe", lambda *names: replace(original(*names), timesteps=256))
        before = signal.getsignal(signal.SIGTERM)
        result = quarl_json("train", "ppo", "cartpole", "--output", "trained")
        signal.signal(signal.SIGTERM, before)
        assert load_policy(folder / "trained").sha256 == result["sha256"]
        assert result["return"]["episodes"] > 0
        code, _, err = quarl("train", "ppo", "cartpole", "--output", "trained")
        assert (code, err) == (2, "quarl train: trained exists; pass --force to replace it, or another --output\n")
        kept = quarl_json("train", "ppo", "cartpole", "--output", "trained", "--resume")
        assert kept["sha256"] == result["sha256"]
        code, _, err = quarl("train", "ppo", "cartpole", "--seed", "1", "--output", "trained", "--resume")
        assert (code, "trained was trained by another recipe or seed" in err) == (2, True)
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


class TestQuantize:
    def test_weights_make_a_policy_folder(self, folder, quarl_json, quarl):
        result = quarl_json("quantize", "policy", "--scheme", "w3", "--output", "w3")
        stored = load_policy(folder / "w3")
        assert stored.sha256 == result["sha256"]
        expected = BALANCER.quantize(Scheme.parse("w3")).net.layers[0].weight
        np.testing.assert_array_equal(stored.policy.net.layers[0].weight, expected)
        assert result["levels"] == {"layers.0.weight": len(np.unique(expected))}
        source = load_policy(folder / "policy").sha256
        assert stored.metadata["quantization"] == {
            "scheme": "w3", "rounding": "nearest", "source_sha256": source, "levels": result["levels"],
            "calibration_states": 0,
        }  # fmt: skip
        assert stored.metadata["algo"] == "ppo"
        assert quarl_json("evaluate", "w3", "--episodes", 5)["measured"]["episodes"] == 5
        assert re.search(r"^  w3 +return", quarl("evaluate", "w3", "--episodes", 3)[1], re.MULTILINE)
        assert "w3 is rounded to w3 already" in quarl("evaluate", "w3", "--scheme", "w2", "--episodes", 3)[1]

    @pytest.mark.parametrize("scheme", ["int8", "int4pc", "int5uncal"])
    def test_integers_load_as_they_were(self, folder, quarl_json, quarl, scheme):
        save_policy(make_policy(HeadKind.ARGMAX, normalized=True), folder / "policy", ABOUT)
        result = quarl_json("quantize", "policy", "--scheme", scheme, "--output", "integers")
        loaded = load_integers(folder / "integers")
        manifest = json.loads((folder / "integers" / "manifest.json").read_text())
        assert loaded.sha256 == result["sha256"]
        assert manifest["quantization"]["scheme"] == result["scheme"] == scheme
        assert max(result["levels"].values()) <= 2 ** Scheme.parse(scheme).bit_width
        states = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
        evaluated = quantize_again(folder / "policy", scheme)
        np.testing.assert_array_equal(loaded.policy.outputs(states), evaluated.outputs(states))
        code, _, err = quarl("sweep", "integers")
        assert code == 2
        assert "holds integers, which are not quantized again; pass the fp32 policy" in err
        played = quarl_json("evaluate", "integers", "--episodes", 3)
        assert (played["scheme"], played["measured"]["episodes"]) == (scheme, 3)
        code, _, err = quarl("evaluate", "integers", "--scheme", "int6")
        assert (code, "are not quantized again; no --scheme" in err) == (2, True)
        code, _, err = quarl("evaluate", "integers", "--states", "5")
        assert (code, "no fp32 policy beside it" in err) == (2, True)

    def test_the_environment_that_was_named_is_kept(self, folder, quarl_json):
        save_policy(BALANCER, folder / "homeless", {"algo": "ppo"})
        quarl_json("quantize", "homeless", "--scheme", "w4", "--environment", "cartpole", "--output", "w4")
        assert quarl_json("evaluate", "w4", "--episodes", 3)["environment"] == "CartPole-v1"

    def test_a_damaged_integer_folder_is_named(self, folder, quarl_json):
        quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
        file = folder / "integers" / "integers.safetensors"
        whole = file.read_bytes()
        file.write_bytes(whole[:-1])
        with pytest.raises(PolicyError, match="sha256 is not the manifest's"):
            load_integers(folder / "integers")
        file.write_bytes(whole)
        manifest = folder / "integers" / "manifest.json"
        for old, new in (('"linear"', '"circular"'), ('"bit_width"', '"bits"'), ('"int8"', "int8"), ("1,", "7,")):
            text = manifest.read_text()
            assert old in text
            manifest.write_text(text.replace(old, new, 1))
            with pytest.raises(PolicyError, match="manifest"):
                load_integers(folder / "integers")
            manifest.write_text(text)
        file.unlink()
        with pytest.raises(PolicyError, match="No such file"):
            load_integers(folder / "integers")

    def test_only_a_policy_is_replaced(self, folder, quarl, quarl_json):
        for scheme in ("w8", "int8", "w4"):  # either form by the other
            quarl_json("quantize", "policy", "--scheme", scheme, "--output", "there")
        assert sorted(path.name for path in (folder / "there").iterdir()) == ["manifest.json", "policy.safetensors"]
        for name in ("model.tflite", "photo.jpg"):  # an artefact's folder, and anybody's
            (folder / name).mkdir()
            (folder / name / "manifest.json").write_text("{}")
            (folder / name / name).touch()
            code, _, err = quarl("quantize", "policy", "--output", name)
            said = f"{name} exists and holds no policy.safetensors or integers.safetensors; it is left alone"
            assert (code, said in err, err.count("\n")) == (2, True, 1)
            assert (folder / name / name).exists()

    def test_the_policy_itself_is_no_output(self, folder, quarl):
        code, _, err = quarl("quantize", "policy", "--output", "../" + folder.name + "/policy")
        assert code == 2
        assert "is the policy itself" in err
        assert load_policy(folder / "policy").metadata == ABOUT


def quantize_again(path, scheme):
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.evaluation.calibration import quantize_calibrated

    return quantize_calibrated(load_policy(path).policy, Scheme.parse(scheme), find_environment("cartpole"))


class TestEvaluate:
    def test_a_pair_of_returns_and_a_verdict(self, folder, quarl, quarl_json):
        result = quarl_json("evaluate", "policy", "--scheme", "w8", "--episodes", 70)
        assert result["environment"] == "CartPole-v1"
        assert result["measured"]["mean"] == result["reference"]["mean"] == 500.0
        assert result["verdict"]["outcome"] == "supported"
        assert "states" not in result
        code, out, err = quarl("evaluate", "policy", "--scheme", "w8", "--episodes", 2)
        assert (code, err) == (0, "")
        assert "fp32      return 500.00 +- 0.00" in out
        assert re.search(r"same action in 9\d\.\d\d% of its states", out)

    def test_integers_are_held_against_the_policy_that_is_named(self, folder, quarl, quarl_json):
        quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
        arguments = ("evaluate", "integers", "--against", "policy", "--episodes", 5)
        found = quarl_json(*arguments, "--states", 100)
        assert (found["scheme"], found["states"]["states"]) == ("int8", 100)
        assert found["reference"]["policy_sha256"] == [load_policy(folder / "policy").sha256]
        assert found["measured"]["policy_sha256"] == [load_integers(folder / "integers").sha256]
        manifest = json.loads((folder / "integers" / "manifest.json").read_text())
        manifest |= {"seed": 3, "recipe": {"timesteps": 200}}
        (folder / "integers" / "manifest.json").write_text(json.dumps(manifest))
        save_policy(BALANCER, folder / "policy", ABOUT | {"seed": 0, "recipe": {"timesteps": 1000}})
        out = quarl(*arguments)[1]
        assert "trained for 1,000 and 200 environment steps" in out
        assert "of training seeds 0 and 3" in out
        code, _, err = quarl("evaluate", "policy", "--against", "policy")
        assert (code, "holds no integers" in err) == (2, True)
        save_policy(BALANCER, folder / "policy", ABOUT | {"environment": "Acrobot-v1"})
        assert quarl(*arguments)[0] == 2

    def test_sampled_actions_have_common_random_numbers(self, folder, quarl, quarl_json):
        arguments = ("evaluate", "policy", "--episodes", 5, "--sampled")
        result = quarl_json(*arguments, "--scheme", "w32")
        assert not result["measured"]["deterministic"]
        assert not result["reference"]["deterministic"]
        assert result["measured"]["per_policy"] == result["reference"]["per_policy"]
        assert result["reference"]["mean"] < 500.0  # the likeliest action would balance
        assert quarl_json(*arguments)["measured"]["mean"] == result["reference"]["mean"]
        assert "5 episodes, sampled actions" in quarl(*arguments)[1]

    def test_what_has_no_softmax_is_not_sampled(self, folder, quarl):
        save_policy(BALANCER, folder / "policy", ABOUT | {"algo": "dqn"})
        code, _, err = quarl("evaluate", "policy", "--sampled")
        assert (code, err.count("\n")) == (2, 1)
        assert "policy has no logits of a softmax" in err

    def test_states_are_compared_by_action_and_by_probability(self, folder, quarl, quarl_json):
        arguments = ("evaluate", "policy", "--episodes", 2, "--states", 300)
        same = quarl_json(*arguments, "--scheme", "w32")["states"]
        assert same == {"states": 300, "agreement": 1.0, "kl": 0.0}
        rounded = quarl_json(*arguments, "--scheme", "w2")["states"]
        assert rounded["agreement"] < 1.0
        assert rounded["kl"] > 0.0
        save_policy(BALANCER, folder / "policy", ABOUT | {"algo": "dqn"})
        assert quarl_json(*arguments, "--scheme", "w2")["states"]["kl"] is None
        assert "its outputs are no logits of a softmax" in quarl(*arguments, "--scheme", "w2")[1]
        assert "name one by --scheme" in quarl(*arguments)[2]

    def test_the_divergence_of_known_logits(self):
        states = np.eye(2, dtype=np.float32)
        one, other = make_linear_policy(np.diag([1.0, 2.0])), make_linear_policy(np.diag([2.0, -1.0]))
        found = compare_states(one, other, states, "a2c")
        p = np.exp([[1, 0], [0, 2]]) / np.exp([[1, 0], [0, 2]]).sum(1, keepdims=True)
        q = np.exp([[2, 0], [0, -1]]) / np.exp([[2, 0], [0, -1]]).sum(1, keepdims=True)
        assert found.kl == pytest.approx((p * np.log(p / q)).sum(1).mean(), rel=1e-6)
        assert (found.states, found.agreement) == (2, 0.5)
        with pytest.raises(PolicyError, match="no states"):
            compare_states(one, other, states[:0], "a2c")

    def test_a_zip_of_stable_baselines3(self, folder, quarl, quarl_json):
        import stable_baselines3 as sb3

        sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=8, batch_size=8, seed=0, device="cpu").save(folder / "agent.zip")
        options = ("--algo", "ppo", "--normalization", "none", "--environment", "CartPole-v1", "--episodes", 3)
        assert quarl_json("evaluate", "agent.zip", *options)["measured"]["episodes"] == 3
        (folder / "broken.zip").write_bytes((folder / "agent.zip").read_bytes()[:100])
        code, _, err = quarl("evaluate", "broken.zip", *options)
        assert code == 2
        assert err.startswith("quarl evaluate: broken.zip")


class TestSweep:
    ARGUMENTS = ("sweep", "policy", "--episodes", 20)

    def test_every_width_is_measured_judged_and_drawn(self, folder, quarl, quarl_json):
        result = quarl_json(*self.ARGUMENTS, "--bits", "2..8", "--output", "out")
        names = [row["scheme"] for row in result["rows"]]
        assert names == ["fp32", "fp16", *(f"w{n}" for n in range(8, 1, -1)), *(f"int{n}" for n in range(8, 1, -1))]
        assert all(row["low"] <= row["return"] <= row["high"] for row in result["rows"])
        with (folder / "out" / "sweep.csv").open() as stream:
            table = list(csv.DictReader(stream))
        assert [row["scheme"] for row in table] == names
        assert float(table[0]["return"]) == 500.0
        assert (folder / "out" / "sweep.png").read_bytes().startswith(b"\x89PNG")
        code, out, err = quarl(*self.ARGUMENTS, "--bits", "8,3", "--family", "int")
        assert (code, err) == (0, "")
        assert [line.split()[0] for line in out.splitlines()[2:6]] == ["fp32", "fp16", "int8", "int3"]

    def test_measurements_are_those_of_evaluate_and_of_pytest(self, folder, quarl_json):
        from quarl_bench.evaluation.protocol import Protocol
        from quarl_bench.experiments.cells import Cells, LazyPolicy, PolicySet
        from quarl_bench.experiments.store import Store, StorePaths
        from quarl_bench.spec import Case

        swept = quarl_json(*self.ARGUMENTS, "--bits", "4")
        alone = quarl_json("evaluate", "policy", "--scheme", "int4", "--episodes", 20)
        assert swept["rows"][-1]["return"] == alone["measured"]["mean"]
        assert swept["rows"][-1]["agreement"] == alone["measured"]["agreement"]
        stored = load_policy(folder / "policy")
        files = sorted((folder / "cache").rglob("*.json"))
        cells = Cells(Store(StorePaths(folder / "cache")), Protocol(1, 20), folder)
        member = LazyPolicy(stored, lambda: pytest.fail("it was measured already"))
        cells.measure(PolicySet(Case("ppo", "cartpole", "int4"), (member,)))
        assert sorted((folder / "cache").rglob("*.json")) == files

    def test_a_killed_sweep_goes_on(self, folder, quarl_json):
        arguments = ["sweep", "policy", "--bits", "2..32", "--family", "w", "--episodes", "400"]
        process = subprocess.Popen([*PROCESS, *arguments], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while len(list((folder / "cache").rglob("*.json"))) < 4 and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        kept = {path: path.stat().st_mtime_ns for path in (folder / "cache").rglob("*.json")}
        assert 4 <= len(kept) < 33
        result = quarl_json(*arguments)
        assert len(result["rows"]) == 33
        assert len(list((folder / "cache").rglob("*.json"))) == 33
        assert kept.items() <= {path: path.stat().st_mtime_ns for path in (folder / "cache").rglob("*.json")}.items()

    def test_sweet_spots(self):
        rows = [
            {"family": family, "bits": bits, "verdict": verdict}
            for family, bits, verdict in [
                ("w", 8, "supported"), ("w", 4, "refuted"), ("w", 3, "supported"), ("w", 2, "refuted"),
                ("int", 8, "inconclusive"),
            ]
        ]  # fmt: skip
        assert find_sweet_spots(rows) == ({"w": 3, "int": None}, {"w": 4, "int": None})

    def test_widths(self):
        assert read_bits("2..4,8") == (8, 4, 3, 2)
        assert [scheme.name for scheme in list_schemes((16, 8), None)] == ["fp32", "fp16", "w16", "w8", "int8"]

    @pytest.mark.parametrize("bits", ["1", "33", "8..2", "", "2...8", "2..8,x", "²"])
    def test_other_widths_are_refused(self, bits, quarl):
        code, _, err = quarl("sweep", "policy", "--bits", bits)
        assert code == 2
        assert "is not a list of bit widths from 2 to 32" in err


class TestWeights:
    def test_statistics_as_text_json_csv_and_picture(self, folder, quarl, quarl_json):
        result = quarl_json("weights", "policy", "--bits", 3, "--output", "out")
        single, pooled = result["rows"]
        assert (single["name"], single["shape"], pooled["name"]) == ("layers.0.weight", "2x4", "all")
        assert (single["min"], single["max"], single["range"]) == (-1.0, 1.0, 2.0)
        assert single["levels"] <= 8
        assert sum(result["histograms"][0]["counts"]) == 8
        with (folder / "out" / "weights.csv").open() as stream:
            assert [row["name"] for row in csv.DictReader(stream)] == ["layers.0.weight", "all"]
        assert (folder / "out" / "weights.png").read_bytes().startswith(b"\x89PNG")
        code, out, _ = quarl("weights", "policy", "--scheme", "fp16")
        assert code == 0
        assert "before and after fp16" in out

    def test_wrong_widths_and_schemes(self, folder, quarl):
        assert quarl("weights", "policy", "--bits", 33)[2] == "quarl weights: --bits 33: it must be 2 to 32\n"
        assert quarl("weights", "policy", "--bits", 1)[0] == 2
        assert "under fp32, fp16 or w<bits>" in quarl("weights", "policy", "--scheme", "int8")[2]
        assert quarl("weights", "policy", "--scheme", "w8", "--bits", 8)[0] == 2


@pytest.mark.needs("litert")
def test_deploy_writes_an_artefact_that_proved_itself(folder, quarl_json):
    result = quarl_json("deploy", "policy", "--scheme", "int8", "--output", "artefact")
    assert result["golden_pairs"] > 0
    assert (folder / "artefact" / "model.tflite").stat().st_size == result["bytes"]


@pytest.mark.parametrize("command", ["prove", "fpga"])
def test_integers_have_their_own_scheme(command, folder, quarl, quarl_json):
    quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
    (folder / "file").touch()
    refused = [
        (("integers", "--scheme", "int2"), "integers: holds integers of int8, which are not quantized again; no --s"),
        (("integers", "--algo", "ppo"), "its manifest says algo itself"),
        (("integers", "--cache", "file/cache"), "cannot write folder file/cache: Not a directory"),
    ]
    if command == "fpga":
        refused += [
            (("integers", "--environment", "acrobot"), "which are not calibrated again; leave --environment out"),
            (("random:ant", "--scheme", "int2", "--algo", "ppo"), "own integers; leave --scheme and --algo out"),
            (("integers", "--output", "cache"), "cache exists and holds no design.json; it is left alone"),
            (("integers", "--output", "file/out"), "cannot write folder file: "),
            (("integers", "--qonnx", "file/x.onnx"), "cannot write folder file: "),
        ]
    (folder / "cache" / "of another").mkdir(parents=True)
    for arguments, message in refused:
        # Where nothing is simulated, nothing stands between the arguments and the design.
        rest = ("--vectors", 0, "--estimate") if command == "fpga" else ()
        code, _, err = quarl(command, *arguments, *rest)
        assert (code, message in err, err.count("\n")) == (2, True, 1), err


@pytest.mark.parametrize("backend", ["c", "dump"])
def test_integers_deploy_as_they_are(backend, folder, quarl, quarl_json):
    save_policy(make_policy(HeadKind.ARGMAX, normalized=True), folder / "policy", ABOUT)
    made = quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
    result = quarl_json("deploy", "integers", "--backend", backend, "--output", "ours")
    assert (result["scheme"], result["golden_pairs"] > 0) == ("int8", True)
    manifest = json.loads((folder / "ours" / "manifest.json").read_text())
    assert made["sha256"] in json.dumps(manifest)
    for other, message in (
        (("--scheme", "int6"), "which are not quantized again"),
        (("--backend", "tpu"), "unknown backend 'tpu'; known are litert, litert-dynamic, c, onnx, dump"),
    ):
        code, _, err = quarl("deploy", "integers", "--backend", backend, *other, "--output", "other")
        assert (code, message in err) == (2, True)


def test_an_error_in_an_environment_is_no_verdict(folder, quarl, monkeypatch, capsys):
    """1 is what `quarl check` returns for a refuted claim."""
    monkeypatch.setattr("quarl_bench.cli.commands.check.run", Mock(side_effect=RuntimeError("the simulator broke")))
    try:
        code = cli.main(["check", "policy"])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert "RuntimeError: the simulator broke" in error
    assert error.endswith("quarl check: an error in an environment or policy of yours, or in quarl\n")


BREAKS = """
import gymnasium, numpy as np

class Breaks(gymnasium.Env):
    max_episode_steps = 20
    observation_space = gymnasium.spaces.Box(-5, 5, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action):
        return {what}
"""


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("1 / 0", "step() raised ZeroDivisionError: division by zero ("),
        ("np.full(4, np.nan, np.float32), 1.0, False, False, {}", "an observation has NaN"),
        ("np.zeros(4, np.float32), float('inf'), False, False, {}", "a reward is inf"),
        ("np.zeros(3, np.float32), 1.0, False, False, {}", "an observation has the shape (3,), not (4,)"),
        ("np.array(['a'] * 4), 1.0, False, False, {}", "an observation has the dtype <U1, not float32"),
    ],
)
@pytest.mark.parametrize("command", ["check", "evaluate"])
def test_what_an_environment_does_wrong_is_one_line(command, what, message, folder, quarl):
    name = f"breaks_{folder.name}".replace("-", "_")
    (folder / f"{name}.py").write_text(BREAKS.replace("{what}", what))
    code, out, err = quarl(command, "policy", "--environment", f"{name}:Breaks", "--episodes", "3")
    (line,) = err.strip().splitlines()
    assert (code, out) == (2, "")
    assert line.startswith(f"quarl {command}: environment {name}.Breaks-v0, seed ")
    assert message in line


@pytest.mark.parametrize("error", [BrokenPipeError("the simulator has gone"), SystemExit(0), SystemExit(1)])
def test_neither_is_one_that_looks_like_an_end_of_ours(error, folder, monkeypatch, capsys):
    """A pipe of the user's own that breaks, and code that ends the process: 0 would be "supported"."""
    monkeypatch.setattr("quarl_bench.cli.commands.check.run", Mock(side_effect=error))
    assert cli.main(["check", "policy"]) == 2
    assert "in an environment or policy of yours" in capsys.readouterr().err


def test_an_environment_of_ones_own_is_named_each_time(folder, quarl, quarl_json):
    """Its id is this process's own: a manifest that names it could not be played by any other."""
    (folder / "mine.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv as Base\n\n"
        "class Mine(Base):\n    max_episode_steps = 50\n"
    )
    mine = ("--environment", "mine:Mine")
    for scheme in ("int8", "w4"):
        quarl_json("quantize", "policy", "--scheme", scheme, *mine, "--output", scheme)
        assert json.loads((folder / scheme / "manifest.json").read_text())["environment"] == "CartPole-v1"
        assert quarl_json("evaluate", scheme, "--episodes", 2, *mine)["environment"] == "mine.Mine-v0"
        assert quarl_json("evaluate", scheme, "--episodes", 2)["environment"] == "CartPole-v1"
    manifest = folder / "w4" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("CartPole-v1", "mine:Mine"))
    code, _, err = quarl("evaluate", "w4", "--episodes", 2)
    assert (code, "unknown environment 'mine:Mine'" in err) == (2, True)  # a file's word imports nothing


def test_integers_play_where_they_fit(folder, quarl, quarl_json):
    quarl_json("quantize", "policy", "--scheme", "int8", "--output", "integers")
    for arguments, message in (
        (("evaluate", "integers", "--environment", "mountaincar"), "an agent of (4,) observations cannot play"),
        (("deploy", "integers", "--environment", "acrobot", "--output", "o"), "which gives (6,)"),
        (("evaluate", "integers", "--algo", "sac"), "its manifest says algo itself"),
        (("quantize", "policy", "--output", "policy"), "is the policy itself"),
    ):
        code, _, err = quarl(*arguments)
        assert (code, message in err, err.count("\n")) == (2, True, 1), err
    assert not (folder / "o").exists()


def test_a_baseline_is_not_replaced_by_what_is_made_of_it(folder, quarl):
    shutil.copytree(folder / "policy", folder / "baselines" / "policies" / "ppo-cartpole-seed7")
    before = (folder / "baselines/policies/ppo-cartpole-seed7/manifest.json").read_bytes()
    code, _, err = quarl("quantize", "ppo-cartpole-seed7", "--output", "baselines/policies/ppo-cartpole-seed7")
    assert (code, "is the policy itself" in err) == (2, True)
    assert (folder / "baselines/policies/ppo-cartpole-seed7/manifest.json").read_bytes() == before


def test_wrong_arguments_are_one_line(quarl, capsys):
    for arguments in (["select", "sac", "hopperv4", "--widths", "16..2000000000", "--published", "x"], ["nothing"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_many_seeds_options_are_refused_for_several_schemes(folder, quarl):
    for option in (("--width", 16), ("--raw",)):
        code, _, err = quarl("train", "ppo", "cartpole", "--scheme", "qat8,qat4", "--output", "arms", *option)
        assert (code, "pass --seeds too" in err) == (2, True)


def test_a_missing_compiler_is_said_before_anything_is_played(folder, quarl, monkeypatch):
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr("quarl_bench.evaluation.calibration.quantize_calibrated", lambda *_: pytest.fail("played"))
    code, _, error = quarl("deploy", "policy", "--backend", "c", "--output", "o")
    assert (code, error) == (2, "quarl deploy: c: no C compiler (cc, gcc); install one, or name it in CC\n")


@pytest.mark.parametrize(
    "backend",
    [pytest.param("c", marks=pytest.mark.needs("cc")), pytest.param("onnx", marks=pytest.mark.needs("onnx")), "dump"],
)
def test_deploy_to_other_backends(backend, folder, quarl, quarl_json):
    result = quarl_json("deploy", "policy", "--scheme", "int8", "--backend", backend, "--output", "artefact")
    assert (result["backend"], result["golden_pairs"]) == (backend, 261)
    code, _, error = quarl("deploy", "policy", "--scheme", "fp32", "--backend", "dump", "--output", "float")
    assert code == 2
    assert error.startswith("quarl deploy: dump: it holds integers")
    assert not (folder / "float").exists()


@pytest.mark.needs("litert")
def test_a_backend_by_its_other_name(folder, quarl, quarl_json):
    assert quarl_json("deploy", "policy", "--backend", "tflite", "--output", "artefact")["backend"] == "litert"
    code, _, error = quarl("deploy", "policy", "--backend", "tflit", "--output", "other")
    assert (code, error.count("\n")) == (2, 1)
    assert "unknown backend 'tflit'; did you mean 'tflite'? known are litert, litert-dynamic, c, onnx, dump" in error


@pytest.mark.needs("litert", "cc")
def test_evaluate_plays_the_artefact_and_says_so(folder, quarl, quarl_json):
    simulated = quarl_json("evaluate", "policy", "--scheme", "int8", "--episodes", 5)
    assert "backend" not in simulated
    for backend in ("litert", "c"):
        played = quarl_json("evaluate", "policy", "--scheme", "int8", "--episodes", 5, "--backend", backend)
        assert played["measured"] == simulated["measured"]
        assert played["backend"]["name"] == backend
    _, text, _ = quarl("evaluate", "policy", "--episodes", 2, "--backend", "c")
    assert re.search(r"fp32 is played by its c artefact, in .*, kernel strict; \d+ golden pairs re-run", text)
    code, _, error = quarl("evaluate", "policy", "--scheme", "w8", "--backend", "dump")
    assert (code, error.count("\n")) == (2, 1)


class TestReport:
    def test_a_page_of_what_the_commands_print(self, folder, quarl, quarl_json):
        (folder / "sweep.json").write_text(quarl("sweep", "policy", "--episodes", 3, "--bits", "4", "--json")[1])
        (folder / "weights.json").write_text(quarl("weights", "policy", "--json")[1])
        result = quarl_json("report", "sweep.json", "weights.json", "--output", "sub/page.html")
        page = (folder / "sub" / "page.html").read_text()
        assert (result["files"], result["bytes"]) == (2, len(page.encode()))
        assert page.count("<svg") == 2
        assert quarl("report", "sweep.json")[0] == 0
        assert (folder / "report.html").exists()

    def test_other_files(self, folder, quarl):
        (folder / "x.json").write_text("{")
        assert quarl("report", "x.json")[2].startswith("quarl report: x.json: not JSON")
        assert quarl("report", "none.json")[2].startswith("quarl report: none.json: No such file")
        assert not (folder / "report.html").exists()


@pytest.mark.parametrize("command", ["quantize", "evaluate", "sweep", "weights", "deploy"])
def test_wrong_policies_end_in_one_line(command, folder, quarl):
    options = ("--output", "out") if command in ("quantize", "deploy") else ()
    for name, damage in (
        ("nowhere", lambda path: path),
        ("truncated", lambda path: (path / "policy.safetensors").write_bytes(b"\x08" * 30)),
        ("speechless", lambda path: (path / "manifest.json").write_text("{")),
    ):
        if name != "nowhere":
            save_policy(BALANCER, folder / name, ABOUT)
        damage(folder / name)
        code, out, err = quarl(command, name, *options)
        assert (code, out) == (2, "")
        assert err.startswith(f"quarl {command}: {name}")
        assert err.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.parametrize("command", ["quantize", "evaluate", "deploy", "weights"])
def test_unknown_schemes_end_in_one_line(command, folder, quarl):
    options = ("--output", "out") if command in ("quantize", "deploy") else ()
    code, _, err = quarl(command, "policy", "--scheme", "w1", *options)
    assert code == 2
    assert err.startswith(f"quarl {command}: scheme 'w1': w<bits> takes 2..32 bits")
    code, _, err = quarl(command, "policy", "--scheme", "octal", *options)
    assert code == 2
    assert "unknown scheme 'octal'; known are fp32" in err


@pytest.mark.parametrize("command", ["quantize", "sweep", "weights", "deploy"])
def test_an_output_that_cannot_be_written_ends_in_one_line(command, folder, quarl):
    if command == "deploy":
        pytest.importorskip("ai_edge_litert", reason="needs ai-edge-litert: pip install 'quarl_bench[litert]'")
    (folder / "file").write_text("")
    episodes = ("--episodes", 2) if command == "sweep" else ()
    code, out, err = quarl(command, "policy", "--output", "file/out", *episodes)
    assert (code, out) == (2, "")
    assert "cannot write" in err
    assert err.count("\n") == 1
    assert not (folder / "cache").exists()  # said before any work was done


def test_a_cache_that_cannot_be_written_ends_in_one_line(folder, quarl, monkeypatch):
    (folder / "file").write_text("")
    monkeypatch.setenv("QUARL_CACHE_DIR", str(folder / "file" / "cache"))
    code, _, err = quarl("sweep", "policy", "--episodes", 2)
    assert code == 2
    assert err.startswith("quarl sweep: cannot write the cache")


@pytest.mark.parametrize("command", ["evaluate", "sweep"])
@pytest.mark.parametrize("episodes", ["0", "-3", "many", "1.5", "9" * 7, "9" * 5000])
def test_episodes_are_a_positive_number(command, episodes, folder, quarl):
    code, _, err = quarl(command, "policy", "--episodes", episodes)
    assert code == 2
    assert "--episodes" in err
    assert err.count("\n") == 1


def test_a_seed_is_one_of_numpys(quarl):
    code, _, err = quarl("train", "ppo", "cartpole", "--seed", 2**32)
    assert (code, "'4294967296' is too large; give at most 4294967295" in err) == (2, True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("sweep", "--output", "new"),
        ("weights", "--output", "new"),
        ("check", "--export", "new", "--html", "new/x.html"),
    ],
)
def test_what_is_refused_leaves_no_folder(arguments, folder, quarl):
    command, *places = arguments
    code, _, err = quarl(command, "nowhere", *places)
    assert (code, err) == (2, f"quarl {command}: nowhere: {NOWHERE}\n")
    assert not (folder / "new").exists()


def test_a_policy_without_an_environment_says_how_to_name_one(folder, quarl):
    save_policy(BALANCER, folder / "policy", {})
    code, _, err = quarl("evaluate", "policy", "--episodes", 2)
    assert (code, err) == (2, "quarl evaluate: policy: the policy names no environment; pass --environment\n")
    assert quarl("evaluate", "policy", "--episodes", 2, "--environment", "cartpole")[0] == 0
    assert quarl("evaluate", "policy", "--episodes", 2, "--environment", "Cart")[0] == 2
    code, _, err = quarl("evaluate", "policy", "--episodes", 2, "--environment", "Acrobot-v1")
    assert code == 2
    assert "cannot play Acrobot-v1" in err
    assert quarl("quantize", "policy", "--scheme", "w8", "--output", "w8")[0] == 0  # needs none


def test_a_reader_that_stops_early_is_no_error(folder):
    with subprocess.Popen([*PROCESS, "weights", "policy"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert os.waitstatus_to_exitcode(process.returncode) == 0
