"""Cells that are judged with argmax and with sampled actions: the weaker verdict counts."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.evaluation.protocol import Protocol
from quarl_bench.experiments.cells import Cells
from quarl_bench.experiments.store import Store, StorePaths, Train
from quarl_bench.judging.claim import JudgedCase, JudgedClaim, over
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.modes import describe
from quarl_bench.judging.rules.cells import Drops, Keeps
from quarl_bench.judging.rules.returns import Count, Gains, Loses, MeanError, Tracks
from quarl_bench.policies.algorithm import is_sampled
from quarl_bench.policies.storage.fp32 import save_policy
from quarl_bench.report.rows.builder import build_row, show_case
from quarl_bench.spec import Case, Measurement, Outcome, PolicySpec
from tests.support.claims import make_claim
from tests.support.stores import FakeTrainer, make_policy

CLAIM = make_claim(Keeps(0.05), cells=over("ppo", "breakout"))
JUDGED = JudgedCase(CLAIM, Case("ppo", "breakout", "w8"))
POLICIES, EPISODES = 3, 60


def judge_case(judged, reference, measured):
    return judged.claim.require(Keeps).decide_case(judged, reference, measured)


def case_p_values(judged, reference, measured):
    return judged.claim.require(Keeps).find_p_values(judged, reference, measured)


def judge_claim(item, evidence):
    return item.claim.judgement.decide(item, evidence)


def measure(mean, seed, *, sampled=False):
    rng = np.random.default_rng(seed)
    rows = (mean + rng.normal(size=(POLICIES, EPISODES))).tolist()
    return Measurement(
        tuple(map(str, range(POLICIES))),
        tuple(range(EPISODES)),
        tuple(f"e{i}" for i in range(EPISODES)),
        tuple(map(tuple, rows)),
        ((1,) * EPISODES,) * POLICIES,
        deterministic=not sampled,
    )


def make_pair(argmax, sampled):
    """fp32 scores 100 either way; the candidate `argmax` and `sampled`."""
    reference = replace(measure(100, 0), sampled=measure(100, 1, sampled=True))
    return reference, replace(measure(argmax, 2), sampled=measure(sampled, 3, sampled=True))


@pytest.mark.parametrize(
    ("argmax", "sampled", "outcome", "named"),
    [
        (100, 100, Outcome.SUPPORTED, "of argmax actions; sampled actions are supported"),
        (100, 50, Outcome.REFUTED, "of sampled actions; argmax actions are supported"),
        (50, 100, Outcome.REFUTED, "of argmax actions; sampled actions are supported"),
        (100, 95.05, Outcome.INCONCLUSIVE, "of sampled actions; argmax actions are supported"),
        (50, 95.05, Outcome.REFUTED, "of argmax actions; sampled actions are inconclusive"),
    ],
)
def test_the_weaker_verdict_counts(argmax, sampled, outcome, named):
    verdict = judge_case(JUDGED, *make_pair(argmax, sampled))
    assert verdict.outcome is outcome
    assert verdict.caveats[0].startswith(named)


def test_two_ways_of_acting_make_no_more_errors_than_one():
    """A loss that one of them alone shows at 5%, and not at 2.5%, does not refute."""
    outcomes = set()
    for sampled in np.linspace(94.4, 95.0, 25):
        pair = make_pair(100, sampled)
        alone = judge_case(JUDGED, *(m.sampled for m in pair)).outcome
        both = judge_case(JUDGED, *pair)
        outcomes.add((alone, both.outcome))
        if (alone, both.outcome) == (Outcome.REFUTED, Outcome.INCONCLUSIVE):
            assert case_p_values(JUDGED, *pair)[1] >= 0.05
            assert "one way of acting alone" in both.needed
            assert judge_case(JUDGED, *(replace(m, sampled=None) for m in pair)).outcome is not Outcome.REFUTED
    assert (Outcome.REFUTED, Outcome.INCONCLUSIVE) in outcomes
    assert (Outcome.REFUTED, Outcome.REFUTED) in outcomes


def test_a_drop_is_the_opposite_of_retention():
    drops = replace(JUDGED, claim=replace(CLAIM, judgement=Drops(0.05)))
    for argmax, sampled, outcome in (
        (50, 50, Outcome.SUPPORTED),
        (100, 50, Outcome.REFUTED),
        (100, 100, Outcome.REFUTED),
    ):
        pair = make_pair(argmax, sampled)
        found, (one, other) = judge_case(drops, *pair), case_p_values(drops, *pair)
        assert found.outcome is outcome
        assert (one < 0.05, other < 0.05) == (outcome is Outcome.SUPPORTED, outcome is Outcome.REFUTED)
        for plain in (tuple(replace(m, sampled=None) for m in pair), tuple(m.sampled for m in pair)):
            assert case_p_values(drops, *plain) == case_p_values(JUDGED, *plain)[::-1]


def test_weights_need_both_to_support_and_either_to_refute():
    both = make_pair(100, 50)
    alone = tuple(replace(m, sampled=None) for m in both)
    hurt = tuple(m.sampled for m in both)
    kept, lost = zip(case_p_values(JUDGED, *alone), case_p_values(JUDGED, *hurt), strict=True)
    assert case_p_values(JUDGED, *both) == (max(kept), min(2 * min(lost), max(lost)))


def test_an_average_over_cells_is_judged_both_ways():
    claim = JudgedClaim(replace(CLAIM, judgement=MeanError(0.05)), "ppo", "w8", (JUDGED.case,))
    plain = (measure(100, 5), measure(100, 6))
    for sampled, outcome in ((100, Outcome.SUPPORTED), (60, Outcome.REFUTED)):
        cells = Evidence({"games": make_pair(100, sampled), "other": plain}, policies=POLICIES)
        assert judge_claim(claim, cells).outcome is outcome
    assert judge_claim(claim, Evidence({"other": plain}, policies=POLICIES)).caveats[0].startswith("says nothing")


def test_errors_relative_to_nothing_are_left_out():
    """And algorithms on one task are averaged: they are no two draws of a task."""
    claim = replace(CLAIM, judgement=Gains(0.0, "int"))
    judged = JudgedClaim(claim, "all", "w8", (JUDGED.case,))
    tasks = {
        f"{algo}-t{i}-w8": tuple(measure(mean, i) for mean in (100, 99, 90))
        for algo in ("a2c", "ppo")
        for i in range(6)
    }
    some = {**tasks, "a2c-t0-w8": tuple(measure(mean, 0) for mean in (0.1, 99, 90))}
    whole = judge_claim(judged, Evidence(tasks, policies=POLICIES))
    assert (whole.outcome, whole.caveats) == (Outcome.SUPPORTED, ("better in 6, equal in 0 of 6 tasks",))
    found = judge_claim(judged, Evidence(some, policies=POLICIES))
    assert found.estimate == pytest.approx(whole.estimate)
    assert found.caveats[-1].startswith("left out: a2c-t0-w8 has an fp32 return within 5 standard errors of 0")


def test_a_row_shows_both():
    pair = make_pair(100, 50)
    row = build_row(JUDGED, judge_case(JUDGED, *pair), **show_case(JUDGED, *pair))
    assert row.measured["mean"] == pytest.approx(100, abs=1)
    assert row.measured["sampled"]["mean"] == pytest.approx(50, abs=1)
    assert (row.measured["deterministic"], row.measured["sampled"]["deterministic"]) == (True, False)
    assert row.preprocessing == "sb3-atari-1"
    assert {"ale-py", "opencv-python-headless"} <= set(row.versions)


def test_only_actor_critics_on_atari_are_sampled():
    assert is_sampled("ppo", atari=True)
    assert is_sampled("a2c", atari=True)
    assert not is_sampled("dqn", atari=True)
    assert not is_sampled("ppo", atari=False)


def test_a_stored_measurement_has_one_mode():
    measured = make_pair(1, 1)[1]
    assert Measurement.from_dict(measured.as_dict()) == replace(measured, sampled=None)


class TestPolicies:
    """How many policies a cell has."""

    def save(self, folder, seeds):
        for seed in seeds:
            save_policy(make_policy(seed), folder / "policies" / PolicySpec("ppo", "cartpole", seed).name, {})

    def count(self, places, train=Train.NEVER, **options):
        cells = Cells(Store(places, train, **options), Protocol(3, 20), places.cache)
        return len(cells.find_policies(Case("ppo", "cartpole", "fp32")).members)

    @pytest.mark.parametrize(("seeds", "used"), [([0], 1), ([0, 1, 3], 3), (range(5), 5), (range(11), 8)])
    def test_all_that_are_there_up_to_eight(self, tmp_path, seeds, used):
        self.save(tmp_path / "baselines", seeds)
        assert self.count(StorePaths(tmp_path, tmp_path / "baselines")) == used

    def test_missing_ones_are_trained_where_that_is_allowed(self, tmp_path):
        self.save(tmp_path / "baselines", [0])
        trainer = FakeTrainer()
        assert self.count(StorePaths(tmp_path, tmp_path / "baselines"), Train.MISSING, trainer=trainer) == 3
        assert trainer.calls == 2
        assert self.count(StorePaths(tmp_path, tmp_path / "baselines")) == 3


@pytest.mark.parametrize(("factor", "outcome"), [(0.6, Outcome.SUPPORTED), (1.0, Outcome.REFUTED)])
def test_a_loss_is_retention_refuted(factor, outcome):
    claim = replace(CLAIM, judgement=Loses(0.05, "fp16"))
    judged = JudgedClaim(claim, "dqn", "w8", (JUDGED.case,))
    reference, candidate = measure(100, 0), measure(100 * factor, 1)
    verdict = judge_claim(judged, Evidence({"cell": (measure(100, 9), candidate, reference)}, policies=POLICIES))
    assert verdict.outcome is outcome
    assert verdict.estimate == pytest.approx(factor, abs=0.01)
    assert judge_claim(judged, Evidence(missing=("cell",))).outcome is Outcome.PARTIAL


def make_tracking(order, missing=()):
    claim = replace(CLAIM, judgement=Tracks(0.05, "rmse8"))
    names = [f"task{i}" for i in range(len(order))]
    measured = {
        name: (measure(100, i), measure(100 - 5 * rank, i))
        for i, (name, rank) in enumerate(zip(names, order, strict=True))
    }
    spreads = {name: float(i) for i, name in enumerate(names)}
    cells = Evidence(measured, spreads, policies=POLICIES, missing=missing)
    return judge_claim(JudgedClaim(claim, "dqn", "w8", ()), cells)


@pytest.mark.parametrize(
    ("order", "outcome"),
    [
        ([0, 1, 2, 3, 4, 5], Outcome.SUPPORTED),
        ([5, 4, 3, 2, 1, 0], Outcome.REFUTED),
        ([2, 0, 5, 1, 4, 3], Outcome.INCONCLUSIVE),
        ([0, 1, 2, 3, 4], Outcome.UNDECIDABLE),
    ],
)
def test_errors_that_track_the_spread(order, outcome):
    assert make_tracking(order).outcome is outcome


def test_tracking_is_partial_with_a_cell_missing():
    verdict = make_tracking([0, 1, 2, 3, 4, 5], ("x",))
    assert (verdict.outcome, verdict.estimate) == (Outcome.PARTIAL, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("threshold", "missing", "outcome"),
    [(2.0, 0, Outcome.SUPPORTED), (3.0, 0, Outcome.REFUTED), (3.0, 1, Outcome.PARTIAL), (1.0, 1, Outcome.SUPPORTED)],
)
def test_a_count_of_cases(threshold, missing, outcome):
    claim = replace(CLAIM, judgement=Count(threshold))
    cases = tuple(Case("ppo", f"task{i}", "w8") for i in range(3))
    verdict = judge_claim(JudgedClaim(claim, "all", "all", cases), Evidence(missing=("a",) * missing))
    assert (verdict.outcome, verdict.estimate) == (outcome, 3.0 - missing)
    assert f"{3 - missing} of 3 cases" in describe(verdict) + verdict.caveats[0]
