"""The search: what it compares, what it plays, what it chooses by."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.errors import QuantizationError
from quarl_bench.evaluation.protocol import VALIDATION_SEEDS
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing import candidate, workbench
from quarl_bench.repairing import search as searching
from quarl_bench.repairing.search import Round, choose, list_rounds, rank, search
from quarl_bench.repairing.workbench import Attempt, Workbench
from tests.support.fragile import INT8, make_attempt, make_subject


@pytest.fixture
def subject(monkeypatch):
    monkeypatch.setattr(candidate, "STATES", 200)
    monkeypatch.setattr(searching, "RANGED", 2)
    monkeypatch.setattr(searching, "list_rounds", lambda _: (Round(4, 3), Round(2, 5)))
    return make_subject()


def test_the_best_decisions_are_played_and_seeds_are_apart(subject, monkeypatch):
    played, told = [], []
    play = subject.play
    monkeypatch.setattr(
        subject, "play", lambda scheme, seeds: played.append((scheme.name, seeds)) or play(scheme, seeds)
    )
    found = search(Workbench(subject, tell=told.append), INT8)
    names = [attempt.candidate.name for attempt in found.attempts]
    assert len(names) == len(set(names)) == 24 + 2 * 3 + 2 + 5
    assert found.unfit == {}
    episodes = {attempt.candidate.name: len(attempt.returns) for attempt in found.attempts}
    assert sorted(episodes.values())[-5:] == [3, 3, 5, 5, 5] or sorted(episodes.values())[-4:] == [3, 3, 5, 5]
    assert episodes["int8"] == 5
    assert all(seeds[0] == VALIDATION_SEEDS for _, seeds in played)
    assert len(told) == len(names) + sum(1 for _ in episodes.values() if _) + sum(n == 5 for n in episodes.values())
    assert found.chosen.validation > 2 * next(a for a in found.attempts if a.candidate.name == "int8").validation


def test_a_target_leaves_forms_out_and_says_why(subject, monkeypatch):
    def find_unfit(policy, target):
        return f"{target}: too wide" if policy.net.output.wide else ""

    monkeypatch.setattr(workbench, "find_unfit", find_unfit)
    found = search(Workbench(subject, "fpga"), INT8)
    assert set(found.unfit.values()) == {"fpga: too wide"}
    assert all("acc" in name for name in found.unfit)
    assert not any(attempt.candidate.scheme.wide_outputs for attempt in found.attempts)


def test_every_form_has_a_design(subject):
    found = search(Workbench(subject, "fpga"), INT8)
    assert found.unfit == {}
    assert any(attempt.candidate.scheme.wide_outputs for attempt in found.attempts)


@pytest.mark.needs("litert")
def test_without_a_form_the_reason_is_the_error(subject):
    with pytest.raises(QuantizationError, match=r"^int4: litert: its kernels take 8-bit signed"):
        search(Workbench(subject, "litert"), Scheme.parse("int4"))


def test_ranks_weigh_regret_and_agreement():
    numbers = {"int8": (0.5, 0.5), "int8pc": (0.96, 0.3), "int8eq": (0.9, 0.01), "int8acc": (0.95, 0.02)}
    attempts = [make_attempt(name, *pair) for name, pair in numbers.items()]
    assert [a.candidate.name for a in rank(attempts)] == ["int8eq", "int8acc", "int8pc", "int8"]


def test_of_returns_within_a_standard_error_the_least_regret_counts():
    rng = np.random.default_rng(0)
    base = rng.normal(100, 20, 40)
    better, worse = base + 20 * np.resize([1.0, -0.9], 40), base - 50
    attempts = [
        make_attempt("int8", 0.9, 0.2, better),
        make_attempt("int8pc", 0.9, 0.1, base),
        make_attempt("int8eq", 0.9, 0.0, worse),
        make_attempt("int8acc", 0.9, 0.0, base[:10] + 1000),  # in an earlier round only
    ]
    assert choose(attempts).candidate.name == "int8pc"
    assert choose([replace(attempts[0], returns=tuple(base + 30)), attempts[1]]).candidate.name == "int8"


def test_an_attempt_that_was_not_played_has_no_return():
    assert make_attempt("int8", 1.0, 0.0).validation is None
    assert isinstance(make_attempt("int8", 1.0, 0.0, [1.0, 3.0]), Attempt)
    assert make_attempt("int8", 1.0, 0.0, [1.0, 3.0]).validation == 2.0


def test_short_episodes_buy_more_of_them():
    subject = make_subject()
    first, last = list_rounds(subject)
    assert (first.episodes, last.count) == (10, 5)
    length = sum(subject.play(Scheme.parse("fp32"), range(VALIDATION_SEEDS, VALIDATION_SEEDS + 10)).lengths[0]) / 10
    assert 12 <= first.count == int(120_000 / (10 * length)) <= 40
    assert 40 <= last.episodes <= 100
