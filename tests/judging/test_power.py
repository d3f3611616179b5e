"""How many policies would decide: the claim's own judgement on made-up policies."""

from dataclasses import replace

import numpy as np
import pytest

from quarl_bench.judging import statistics as stats
from quarl_bench.judging.claim import expand, over
from quarl_bench.judging.modes import judge_case
from quarl_bench.judging.power import COUNTS, Spread, count_policies, find_power
from quarl_bench.judging.rules.cells import Drops, Keeps
from quarl_bench.judging.rules.returns import Equivalent, MeanError, MostCells
from quarl_bench.spec import Outcome
from tests.support.claims import make_claim, make_item
from tests.support.measurements import measure_all
from tests.support.rows import make_row, to_rows

CELL = "ppo-lunarlander-w8"
LANDERS = {"cells": over("ppo", "lunarlander")}
WIDE = Spread(level=200.0, kept=1.0, sd=0.05, episodes=50)


def make_case(judgement):
    (case,) = expand(make_claim(judgement, **LANDERS))
    return case


def read_spread(reference, candidate, *, bare=False):
    """The spread that is read off the judge's own interval on these returns."""
    before, after = measure_all(reference), measure_all(candidate)
    verdict = judge_case("lunarlander", 0.05, before, after)
    sides = [
        {"mean": float(r.mean()), "policies": len(r), "episodes": r.shape[1], "distinct_episodes": r.shape[1]}
        | ({} if bare else {"per_policy": r.mean(axis=1).tolist()})
        for r in (reference, candidate)
    ]
    (row,) = to_rows(
        [make_row("w8", verdict.estimate, str(verdict.outcome), reference=sides[0], measured=sides[1],
                  interval=[verdict.low, verdict.high])]
    )  # fmt: skip
    return Spread.of(row)


@pytest.mark.parametrize(("sd", "kept"), [(0.05, 1.0), (0.05, 0.8), (0.1, 1.0), (0.02, 0.98), (0.2, 0.7)])
def test_a_case_needs_what_the_noncentral_t_says(sd, kept):
    count, outcome = count_policies(make_case(Keeps(0.05)), {CELL: (replace(WIDE, sd=sd, kept=kept),)})
    assert outcome is (Outcome.SUPPORTED if kept > 0.95 else Outcome.REFUTED)
    exact = max(COUNTS[0], stats.count_policies(kept - 0.95, sd**2))
    place = min(index for index, each in enumerate(COUNTS) if each >= exact)
    assert count in COUNTS[max(0, place - 1) : place + 2]


def test_at_the_threshold_no_number_decides():
    case, spreads = make_case(Keeps(0.05)), {CELL: (replace(WIDE, kept=0.95),)}
    assert count_policies(case, spreads) is None
    for policies in (3, 8, 30):
        assert find_power(case, spreads, policies)[1] < 3 * stats.ERROR


def test_the_opposite_sentence_is_decided_by_as_many_the_other_way():
    spreads = {CELL: (replace(WIDE, kept=0.8),)}
    kept, lost = (count_policies(make_case(judgement), spreads) for judgement in (Keeps(0.05), Drops(0.05)))
    assert (kept[0], kept[1], lost[1]) == (lost[0], Outcome.REFUTED, Outcome.SUPPORTED)


@pytest.mark.parametrize("kept", [0.9, 0.93, 0.95, 0.97, 1.0])
def test_draws_that_end_early_decide_as_all_of_them(kept):
    case, spreads = make_case(Keeps(0.05)), {CELL: (replace(WIDE, kept=kept, shared=0.01),)}
    for policies in (3, 6, 12):
        outcome, power = find_power(case, spreads, policies)
        early, reached = find_power(case, spreads, policies, needed=stats.POWER)
        assert (reached >= stats.POWER) == (power >= stats.POWER)
        assert reached <= power
        assert early is outcome or power < stats.POWER


@pytest.mark.parametrize("cap", [None, 205.0])
def test_a_draw_is_judged_as_the_same_returns_in_tuples(cap):
    case = make_case(Keeps(0.05))
    drawn, reference = WIDE.draw(5, cap, np.random.default_rng(1)), WIDE.repeat(5)
    told = measure_all(np.array(drawn.returns))
    names = {"policies": drawn.policies, "environment_seeds": drawn.environment_seeds, "episodes": drawn.episodes}
    same = replace(told, **names), replace(measure_all(np.array(reference.returns)), **names)
    judgement = case.claim.require(Keeps)
    assert judgement.find_p_values(case, reference, drawn) == judgement.find_p_values(case, same[1], same[0])


@pytest.mark.parametrize(
    ("level", "kept", "sd", "shared"),
    [
        (500.0, 0.99, 0.028, 0.0),
        (480.0, 1.0, 0.04, 0.0),
        (480.0, 1.02, 0.04, 0.0),
        (400.0, 1.0, 0.05, 0.0),
        (490.0, 0.98, 0.01, 0.01),
        (-200.0, 1.5, 0.4, 0.0),
    ],
)
def test_draws_at_a_cap_have_the_stated_mean_and_spread(level, kept, sd, shared):
    cap, rng, spread = 500.0 if level > 0 else -80.0, np.random.default_rng(5), Spread(level, kept, sd, 20, shared)
    drawn = np.array([spread.draw(100, cap, rng).returns for _ in range(400)])
    total = np.hypot(sd, shared * 20**0.5)
    assert drawn.max() <= cap
    assert 1.0 + (drawn.mean() - level) / abs(level) == pytest.approx(kept, abs=total / 50)
    assert drawn.std() / abs(level) == pytest.approx(total, rel=0.05)


@pytest.mark.parametrize("kept", [1.0, 1.000001])
def test_where_the_mean_is_the_cap_every_draw_is_there(kept):
    drawn = Spread(500.0, kept, 0.04, 20).draw(50, 500.0, np.random.default_rng(5))
    assert (np.array(drawn.returns) == 500.0).all()


def test_columns_that_share_no_name_stay():
    values = np.array([[1.5, -0.0, 3.0], [4.0, 5.0, 6.0]])
    merged = stats.merge_columns(values, ("a", "b", "c"))
    assert np.array_equal(merged, values)
    assert not np.shares_memory(merged, values)
    assert not np.signbit(merged[0, 1])  # as a sum that begins at 0
    assert stats.merge_columns(values, ("a", "b", "a")).tolist() == [[2.25, 0.0], [5.0, 5.0]]


def test_more_are_asked_for_than_there_are():
    spreads = {CELL: (replace(WIDE, kept=0.5),)}
    assert count_policies(make_case(Keeps(0.05)), spreads)[0] == COUNTS[0]
    assert count_policies(make_case(Keeps(0.05)), spreads, fewest=9)[0] == 10
    assert count_policies(make_case(Keeps(0.05)), spreads, fewest=COUNTS[-1] + 1) is None


def test_what_episodes_leave_no_policy_mends():
    case = make_case(Keeps(0.05))
    shared = {CELL: (replace(WIDE, sd=0.0, shared=0.05),)}
    own = {CELL: (replace(WIDE, sd=0.05 * 3**0.5, shared=0.0),)}
    assert count_policies(case, shared) is None
    assert count_policies(case, own) is not None


def test_an_item_is_decided_by_its_own_judgement():
    names = [f"{algo}-{task}-w8" for algo, task in over("ppo", "lunarlander acrobot")]
    spreads = {name: (replace(WIDE, kept=0.98, sd=0.03, episodes=20),) for name in names}
    cells = {"cells": over("ppo", "lunarlander acrobot")}
    mean, outcome = count_policies(make_item(MeanError(0.05), **cells), spreads)
    most = count_policies(make_item(MostCells(0.05), **cells), spreads)
    assert outcome is most[1] is Outcome.SUPPORTED
    assert mean < most[0]  # a mean over cells needs fewer than each of them
    alike = {name: (spread, replace(spread, sd=0.0)) for name, (spread,) in spreads.items()}
    assert count_policies(make_item(Equivalent(0.05, "fp32"), **cells), alike)[1] is Outcome.SUPPORTED


@pytest.mark.parametrize("level", [200.0, -200.0])
def test_a_row_tells_the_spread_that_made_it(level):
    rng, found = np.random.default_rng(7), []
    for _ in range(60):
        reference = level * np.ones((8, 50))
        candidate = reference + abs(level) * (-0.1 + 0.06 * rng.standard_normal((8, 1)))
        found.append(read_spread(reference, candidate + rng.standard_normal((8, 50))))
    assert np.mean([each.kept for each in found]) == pytest.approx(0.9, abs=0.01)
    assert np.sqrt(np.mean([each.sd**2 for each in found])) == pytest.approx(0.06, rel=0.15)
    assert max(each.shared for each in found) < 0.01


def test_means_of_policies_tell_episodes_apart():
    rng = np.random.default_rng(3)
    reference = 200.0 * np.ones((8, 50))
    candidate = reference * (0.9 + rng.standard_normal((1, 50)) + 0.01 * rng.standard_normal((8, 1)))
    told, bare = (read_spread(reference, candidate, bare=bare) for bare in (False, True))
    assert told.sd < 0.03 < told.shared
    assert (bare.shared, bare.sd) == (0.0, pytest.approx(np.hypot(told.shared * 8**0.5, told.sd), rel=1e-6))


def test_a_row_without_spread_tells_none():
    (row,) = to_rows([make_row("w8", 0.99, "inconclusive")])
    assert Spread.of(row) is not None
    one = {"mean": 200.0, "policies": 1, "episodes": 100, "distinct_episodes": 99}
    assert Spread.of(replace(row, reference=one)) is None
    assert Spread.of(replace(row, interval=None)) is None
    assert Spread.of(replace(row, reference=row.reference | {"mean": 0.0})) is None
