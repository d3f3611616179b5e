"""The search: what it compares, what it plays, what it chooses by, and the one test; and the command around it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.checking.subject import Subject
from quarl_bench.cli import main
from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.protocol import TEST_SEEDS, VALIDATION_SEEDS
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.policies.storage.fp32 import StoredPolicy, hash_policy, save_policy
from quarl_bench.policies.storage.integers import load_integers
from quarl_bench.quantization.equalization import scale_inputs
from quarl_bench.quantization.net import Activation, Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import search as searching
from quarl_bench.repairing.search import Attempt, choose, compare_decisions, confirm, search

INT8 = Scheme.parse("int8")


def make_fragile():
    """A balancer of CartPole that sees a fifth number, always 1, as a thousand: one scale leaves nothing for the rest.

    Its neurons are as unlike: one is a thousand times as large as the other.
    """
    gains = np.array([0.02, 0.2, 1.0, 0.6], np.float32)
    first = Linear(np.stack([gains, -gains]) * np.float32([[1000.0], [1.0]]), np.zeros(2, np.float32), Activation.RELU)
    second = Linear(np.array([[-0.001, 1.0], [0.001, -1.0]], np.float32), np.zeros(2, np.float32))
    return PolicyNet(ObservationTransform((4,)), Net((4,), (first, second)), ActionHead(HeadKind.ARGMAX))


@pytest.fixture
def subject(monkeypatch):
    monkeypatch.setattr(searching, "STATES", 300)
    monkeypatch.setattr(searching, "EPISODES", 5)
    policy = make_fragile()
    return Subject(StoredPolicy(policy, hash_policy(policy), {}), find_environment("cartpole"))


def test_a_policy_regrets_nothing_of_its_own():
    policy, states = make_fragile(), np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    assert compare_decisions(policy, policy, states) == (1.0, 0.0)
    contrary = replace(policy, net=Net((4,), (policy.net.layers[0], flip(policy.net.layers[1]))))
    agreement, regret = compare_decisions(policy, contrary, states)
    assert agreement < 0.1
    assert regret > 0


def flip(layer):
    return replace(layer, weight=-layer.weight)


def test_numbers_are_compared_over_their_range():
    head = ActionHead(HeadKind.CLIP, np.array([-2.0], np.float32), np.array([2.0], np.float32))
    net = Net((1,), (Linear(np.ones((1, 1), np.float32), np.zeros(1, np.float32)),))
    policy, states = PolicyNet(ObservationTransform((1,)), net, head), np.array([[0.0], [1.0]], np.float32)
    half = replace(policy, net=scale_inputs(net, np.array([0.5])))
    agreement, regret = compare_decisions(policy, half, states)
    assert agreement == 0.5
    assert regret == pytest.approx((0.5 / 4) ** 2 / 2)


def test_the_best_decisions_are_played_and_seeds_are_apart(subject, monkeypatch):
    played, told = [], []
    play = subject.play
    monkeypatch.setattr(
        subject, "play", lambda scheme, seeds: played.append((scheme.name, seeds)) or play(scheme, seeds)
    )
    attempts = search(subject, INT8, told.append)
    assert [a.regret for a in attempts] == sorted(a.regret for a in attempts)
    finalists = [a.scheme.name for a in attempts if a.validation is not None]
    assert {"int8", *(a.scheme.name for a in attempts[: searching.FINALISTS])} == set(finalists)
    assert len(told) == len(attempts) + len(finalists)
    assert all(seeds[0] == VALIDATION_SEEDS for _, seeds in played)
    found = confirm(subject, attempts, INT8, 20, 0.05, None)
    assert {seeds[0] for _, seeds in played[len(finalists) :]} == {TEST_SEEDS}
    assert found.chosen.scheme == choose(attempts)
    assert found.chosen.measured.mean > found.plain.measured.mean
    assert found.changed


def test_of_equal_returns_the_least_regret_counts():
    attempts = [
        Attempt(Scheme.parse(name), 1.0, regret, validation)
        for name, regret, validation in (("int8", 0.2, 10.0), ("int8pc", 0.1, 10.0), ("int8eq", 0.0, None))
    ]
    assert choose(attempts).name == "int8pc"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(searching, "STATES", 300)
    monkeypatch.setattr(searching, "EPISODES", 5)
    save_policy(make_fragile(), tmp_path / "fragile", {"algo": "dqn", "environment": "CartPole-v1", "seed": 0})
    return tmp_path


def test_the_command_writes_what_it_chose(folder, capsys):
    output = folder / "repaired"
    code = main(["repair", str(folder / "fragile"), "--episodes", "30", "--json", "--output", str(output)])
    result = json.loads(capsys.readouterr().out)
    assert code == {"supported": 0, "refuted": 1, "inconclusive": 3}[result["test"]["verdict"]]
    assert result["asked"] == "int8"
    assert result["chosen"] == result["written"]["scheme"] != "int8"
    assert result["plain"]["return"] < result["test"]["return"]
    kept = load_integers(output)
    assert kept.metadata["quantization"]["scheme"] == result["chosen"]
    assert main(["evaluate", str(output), "--episodes", "30", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"]["mean"] == result["test"]["return"]


def test_the_text_says_what_was_tried_and_tested(folder, capsys):
    main(["repair", str(folder / "fragile"), "--episodes", "20"])
    text = capsys.readouterr().out
    assert "24 forms of one policy, the same fp32 function, nothing trained" in text
    assert "The one test, on 20 episodes that chose nothing" in text


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--scheme", "int8pc"], "repair takes int<bits> without options"),
        (["--scheme", "w8"], "repair takes int<bits> without options"),
        (["--scheme", "int9"], "takes 2..8 bits"),
        (["--margin", "2"], "margin 2"),
    ],
)
def test_bad_input_is_one_line(folder, capsys, arguments, line):
    assert main(["repair", str(folder / "fragile"), *arguments, "--output", str(folder / "out")]) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1
    assert not (folder / "out").exists()


def test_integers_are_not_repaired(folder, capsys):
    assert main(["quantize", str(folder / "fragile"), "--scheme", "int8", "--output", str(folder / "ints")]) == 0
    capsys.readouterr()
    assert main(["repair", str(folder / "ints")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
