"""The ladder from its beginning to the one test, and the command around it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.cli import main
from quarl_bench.cli.commands.quantizing.repair import read_seconds
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.protocol import TEST_SEEDS
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.quantization.net import Net
from quarl_bench.repairing import plan as repairing
from quarl_bench.repairing.plan import Plan, check_subject, repair_policy
from quarl_bench.repairing.search import search
from quarl_bench.repairing.workbench import Workbench
from tests.support.fragile import INT8, make_fragile, make_subject, shorten_repairs


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    shorten_repairs(monkeypatch)


def test_a_fragile_policy_is_repaired_and_tested_once(monkeypatch):
    subject = make_subject()
    played = []
    play = subject.play
    monkeypatch.setattr(
        subject, "play", lambda scheme, seeds: played.append((scheme.name, seeds)) or play(scheme, seeds)
    )
    found = repair_policy(subject, Plan(INT8, episodes=20))
    assert found.changed
    assert found.test.measured.mean > 2 * found.plain.measured.mean
    tested = [name for name, seeds in played if seeds[0] == TEST_SEEDS]
    chosen = [] if found.chosen.candidate.steps else [found.test.scheme.name]
    assert sorted(tested) == sorted(["fp32", "int8", *chosen])
    assert found.chosen.candidate.name in str(found)
    assert json.loads(json.dumps(found.as_dict()))["chosen"] == found.chosen.candidate.name


def test_distillation_is_climbed_where_the_rewrites_do_not_do(monkeypatch):
    subject = make_subject()
    monkeypatch.setattr(repairing, "keeps_enough", lambda *_: False)
    found = repair_policy(subject, Plan(INT8, episodes=5))
    assert sum(attempt.rung == "distilled" for attempt in found.found.attempts) == 2
    assert "distilled: 2 in" in str(found)
    short = repair_policy(subject, Plan(INT8, episodes=5, seconds=1.0))
    assert not any(attempt.rung == "distilled" for attempt in short.found.attempts)
    assert "too few for distillation; give more by --budget" in str(short)


def test_what_keeps_enough_is_measured_on_validation_seeds():
    subject = make_subject()
    found = search(Workbench(subject), INT8)
    plain = next(attempt for attempt in found.attempts if attempt.candidate.name == "int8")
    assert not repairing.keeps_enough(subject, Plan(INT8), plain)
    assert repairing.keeps_enough(subject, Plan(INT8), found.chosen)


def flip(policy):
    """The same policy with the other action: on CartPole worse than random."""
    first, last = policy.net.layers
    return replace(policy, net=Net((4,), (first, replace(last, weight=-last.weight))))


def test_a_policy_that_random_play_beats_is_refused():
    with pytest.raises(PolicyError, match=r"^nothing to repair: fp32 does not beat random play"):
        check_subject(make_subject(flip(make_fragile())), Plan(INT8))


def test_damaged_observations_are_refused(monkeypatch):
    subject = make_subject()
    damaged = subject.calibration.copy()
    damaged[3, 1] = np.nan
    subject._calibration = damaged
    with pytest.raises(PolicyError, match="observations hold NaN or infinity"):
        check_subject(subject, Plan(INT8))


def test_features_that_never_vary_and_dead_neurons_are_no_obstacle():
    policy = make_fragile()
    policy.net.layers[0].weight[:, 0] = 0
    subject = make_subject(policy)
    still = subject.calibration.copy()
    still[:, 0] = 0
    subject._calibration = still
    assert repair_policy(subject, Plan(INT8, episodes=5)).found.attempts


def test_a_net_of_one_layer_is_repaired():
    policy = make_fragile()
    weight = np.array([[-0.02, -0.2, -1.0, -0.6], [0.02, 0.2, 1.0, 0.6]], np.float32)
    policy = replace(policy, net=Net((4,), (replace(policy.net.layers[1], weight=weight),)))
    found = repair_policy(make_subject(policy), Plan(INT8, episodes=5))
    assert "no hidden layer ends in a ReLU" in str(found)
    assert found.test.measured.mean > 100


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    save_policy(make_fragile(), tmp_path / "fragile", {"algo": "dqn", "environment": "CartPole-v1", "seed": 0})
    return tmp_path


def test_the_command_writes_what_it_chose(folder, capsys):
    output = folder / "repaired"
    code = main(["repair", str(folder / "fragile"), "--episodes", "30", "--json", "--output", str(output)])
    result = json.loads(capsys.readouterr().out)
    assert code == {"supported": 0, "refuted": 1, "inconclusive": 3}[result["test"]["verdict"]]
    assert result["asked"] == "int8"
    assert result["scheme"] == result["written"]["scheme"]
    assert result["plain"]["return"] < result["test"]["return"]
    kept = load_integers(output)
    assert kept.metadata["quantization"]["scheme"] == result["scheme"]
    assert kept.metadata["quantization"].get("steps", []) == result["steps"]
    assert main(["evaluate", str(output), "--episodes", "30", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["mean"] == result["test"]["return"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--scheme", "int8pc"], "repair takes int<bits> without options"),
        (["--scheme", "w8"], "repair takes int<bits> without options"),
        (["--scheme", "int9"], "takes 2..8 bits"),
        (["--margin", "2"], "margin 2"),
        (["--target", "tpu"], "unknown backend 'tpu'"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, arguments, line):
    assert main(["repair", str(folder / "fragile"), *arguments, "--output", str(folder / "out")]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not (folder / "out").exists()


@pytest.mark.parametrize("time", ["soon", "0s", "-1m", "infh", ""])
def test_a_budget_is_a_time(folder, capsys, time):
    with pytest.raises(SystemExit, match="2"):
        main(["repair", str(folder / "fragile"), f"--budget={time}"])
    assert f"{time!r}: a time is a positive number with s, m or h, as 10m" in capsys.readouterr().err
    assert (read_seconds("90s"), read_seconds("10m"), read_seconds("1h"), read_seconds("5")) == (90, 600, 3600, 5)


def test_a_check_says_what_a_repair_would_try_and_does_it(folder, capsys):
    policy = str(folder / "fragile")
    assert main(["check", policy, "--episodes", "10", "--environment", "cartpole"]) == 1
    text = capsys.readouterr().out
    command = f"`quarl repair {policy} --environment cartpole --scheme int8 --output repaired`"
    assert f"int8 is refuted; {command} would try: a scale per output channel" in text
    output = folder / "repaired"
    code = main(["check", policy, "--episodes", "10", "--json", "--repair", str(output)])
    result = json.loads(capsys.readouterr().out)
    assert result["repair"]["kind"] == "repair"
    assert code == {"supported": 0, "refuted": 1, "inconclusive": 3}[result["repair"]["test"]["verdict"]]
    assert result["repair"]["test"]["return"] > 2 * result["repair"]["plain"]["return"]
    assert load_integers(output).metadata["quantization"]["scheme"] == result["repair"]["scheme"]


def test_integers_are_not_repaired(folder, capsys):
    assert main(["quantize", str(folder / "fragile"), "--scheme", "int8", "--output", str(folder / "ints")]) == 0
    capsys.readouterr()
    assert main(["repair", str(folder / "ints")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "holds integers" in error
