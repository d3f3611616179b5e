"""The judge's functions, its bad inputs, and its error rates on a small part of the simulated grid."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.average import judge_equivalence, judge_mean_error
from quarl_bench.judging.pairs import decide
from quarl_bench.judging.retention import judge_retention, retention_p_values
from quarl_bench.spec import Measurement, Outcome, Verdict
from tests.support import judge_simulation as grid
from tests.support.judge_simulation import Floats, Scenario
from tests.support.sizes import choose, draw_examples

DRAWS = choose(60, 400)
SEEDS = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(grid.SAMPLED)


def find_limit(draws: int, rate: float = 0.06) -> float:
    """Rate that a rule erring with `rate` exceeds in one of 10,000 runs of `draws`."""
    return float(scipy_stats.binom.isf(1e-4, draws, rate)) / draws


def measure(returns: Floats, episodes: tuple[str, ...] | None = None, starts: int | None = None) -> Measurement:
    policies, width = returns.shape
    return Measurement(
        policies=tuple(f"p{i}" for i in range(policies)),
        environment_seeds=tuple(range(width)),
        episodes=episodes or tuple(f"e{i}" for i in range(width)),
        returns=tuple(tuple(row) for row in returns.tolist()),
        lengths=((1,) * width,) * policies,
        starts=starts,
    )


def draw_cell(
    seed: int, kind: str = "normal", policies: int = 3, truth: float = 1.0, tau: float = 0.05
) -> list[Floats]:
    scenario = Scenario(kind, policies, tau, 0.35, truth)
    return list(grid.draw_returns(scenario, np.random.default_rng(seed)))


def judge(reference: Floats, candidate: Floats, **options: float) -> Verdict:
    return judge_retention(measure(reference), measure(candidate), **options)


def decide_naively(reference: Floats, candidate: Floats, margin: float, cap: float | None) -> Outcome:
    """Student's t over all P * E episodes, as if the policies were fixed: the rule this project does not use."""
    contrast = (candidate - (1.0 - margin) * np.sign(reference.mean()) * np.abs(reference)).ravel()
    half = stats.find_t_quantile(contrast.size - 1) * contrast.std(ddof=1) / math.sqrt(contrast.size)
    if abs(contrast.mean()) <= half:
        return Outcome.INCONCLUSIVE
    return Outcome.SUPPORTED if contrast.mean() > 0 else Outcome.REFUTED


# --- error rates and power of the per-cell rule ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "policies"),
    [
        *itertools.product(grid.SAMPLED, [1, 3, 10]),
        *itertools.product(choose(["census-normal", "census-ceilbin", "census-pong"], list(grid.CENSUSES)), [3, 10]),
    ],
)
def test_wrong_verdicts_are_rare(kind: str, policies: int) -> None:
    scenarios = [s for s in grid.list_scenarios([kind], [policies], (0.0, 0.10)) if s.truth == 0.95]
    rates = {s: grid.count_outcomes(s, DRAWS) for s in scenarios}
    assert max(grid.find_worst(rates, kind, policies)) <= find_limit(DRAWS)


@pytest.mark.parametrize("kind", ["normal", "ceil"])
def test_naive_rule_fails_the_same_check(kind: str) -> None:
    scenarios = [s for s in grid.list_scenarios([kind], [3], (0.0, 0.10)) if s.truth == 0.95]
    rates = {s: grid.count_outcomes(s, DRAWS, decide_naively) for s in scenarios}
    assert max(grid.find_worst(rates, kind, 3)) > 2 * find_limit(DRAWS)


@pytest.mark.parametrize("family", grid.FAMILIES)
@pytest.mark.parametrize("policies", [1, 5])
def test_power_is_not_lost(family: str, policies: int) -> None:
    for truth in (1.0, 0.80):
        keys = [Scenario(kind, policies, 0.0, grid.POWER_RHO, truth) for kind in grid.FAMILIES[family]]
        rates = {key: grid.count_outcomes(key, DRAWS // 2) for key in keys}
        expected = grid.EXPECTED_POWER[family][policies][truth][0]
        assert grid.find_power(rates, family, policies, truth, 0.0) >= expected - grid.POWER_SLACK - 0.03


def test_report_names_what_it_misses(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {s: (0.08, 0.0) if s.truth == 0.95 else (1.0, 1.0) for s in grid.list_scenarios()}
    misses = grid.print_report(rates)
    assert len(misses) == len(grid.SAMPLED) * len(grid.POLICIES) + len(grid.CENSUSES) * (len(grid.POLICIES) - 1)
    assert "above 0.07" in misses[0]
    assert "[0.026/0.031]" in capsys.readouterr().out


# --- properties of the verdict --------------------------------------------------------------------------------------


@draw_examples(60, deadline=None)
@given(SEEDS, KINDS, st.sampled_from([1, 2, 3, 5]), st.sampled_from([1.0, 0.95, 0.8]), st.floats(0.01, 1000.0))
def test_verdict_ignores_the_unit_of_return(seed: int, kind: str, policies: int, truth: float, scale: float) -> None:
    reference, candidate = draw_cell(seed, kind, policies, truth)
    before, after = judge(reference, candidate), judge(scale * reference, scale * candidate)
    assert before.outcome == after.outcome
    assert (before.estimate, before.low, before.high) == pytest.approx((after.estimate, after.low, after.high))


@draw_examples(60, deadline=None)
@given(SEEDS, KINDS, st.sampled_from([1, 2, 3, 5]), st.sampled_from([1.0, 0.95, 0.8]))
def test_same_loss_on_a_negated_reference_is_the_same_verdict(
    seed: int, kind: str, policies: int, truth: float
) -> None:
    reference, candidate = draw_cell(seed, kind, policies, truth)
    before, after = judge(reference, candidate), judge(-reference, candidate - 2.0 * reference)
    assert before.outcome == after.outcome
    assert (before.estimate, before.low, before.high) == pytest.approx((after.estimate, after.low, after.high))


@draw_examples(40, deadline=None)
@given(SEEDS, KINDS, st.sampled_from([1, 3]))
def test_order_of_policies_and_episodes_does_not_matter(seed: int, kind: str, policies: int) -> None:
    reference, candidate = draw_cell(seed, kind, policies)
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(reference.shape[0]), rng.permutation(reference.shape[1])
    shuffled = [array[rows][:, columns] for array in (reference, candidate)]
    before, after = judge(reference, candidate), judge(*shuffled)
    assert (before.low, before.high) == pytest.approx((after.low, after.high))


@draw_examples(80, deadline=None)
@given(SEEDS, KINDS, st.sampled_from([1, 2, 3, 5, 8]), st.sampled_from([1.0, 0.97, 0.9, 0.8]))
def test_interval_and_outcome_agree(seed: int, kind: str, policies: int, truth: float) -> None:
    reference, candidate = draw_cell(seed, kind, policies, truth)
    cap = grid.CAPS.get(kind)
    verdict = judge_retention(measure(reference), measure(candidate), cap=cap)
    assert verdict.outcome == decide(reference, candidate, 0.05, cap)
    if verdict.low is None or verdict.high is None or verdict.estimate is None:
        assert verdict.outcome is Outcome.INCONCLUSIVE
        return
    assert verdict.low <= verdict.estimate <= verdict.high
    assert verdict.low < verdict.high
    assert (verdict.outcome is Outcome.SUPPORTED) == (verdict.low > verdict.threshold)
    assert (verdict.outcome is Outcome.REFUTED) == (verdict.high < verdict.threshold)
    other = judge_retention(measure(reference), measure(candidate), cap=cap, margin=0.2)
    assert (verdict.low, verdict.high) == pytest.approx((other.low, other.high), abs=1e-9)


@draw_examples(80, deadline=None)
@given(SEEDS, KINDS, st.sampled_from([1, 3, 5]), st.sampled_from([1.0, 0.95, 0.8]))
def test_p_values_agree_with_the_verdict(seed: int, kind: str, policies: int, truth: float) -> None:
    reference, candidate = draw_cell(seed, kind, policies, truth)
    supported, refuted = retention_p_values(measure(reference), measure(candidate))
    outcome = judge(reference, candidate).outcome
    resolution = 6.0 / stats.WEIGHT_DRAWS
    if outcome is Outcome.SUPPORTED:
        assert supported < stats.ERROR + resolution
    elif supported < stats.ERROR - resolution:
        pytest.fail("p-value supports what the verdict does not")
    if outcome is Outcome.REFUTED:
        assert refuted < stats.ERROR + resolution


@draw_examples(150, deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda p: st.integers(2, 6).flatmap(
            lambda e: st.lists(st.integers(0, 3), min_size=2 * p * e, max_size=2 * p * e).map(
                lambda v: np.array(v, dtype=np.float64).reshape(2, p, e)
            )
        )
    ),
    st.sampled_from([0.0, 1.0, 50.0, -50.0]),
)
def test_interval_never_has_zero_width(returns: Floats, offset: float) -> None:
    verdict = judge(returns[0] + offset, returns[1] + offset)
    if verdict.low is None or verdict.high is None:
        assert verdict.outcome is Outcome.UNDECIDABLE
    else:
        assert verdict.high - verdict.low > 1e-6


@pytest.mark.parametrize("policies", [1, 2, 3])
@pytest.mark.parametrize("ratio", [1.0, 0.97, 0.95, 0.5, 0.0, -1.0, 2.5])
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_exactly_proportional_returns_have_width(policies: int, ratio: float, spread: float) -> None:
    reference = 1.0 + spread * np.random.default_rng(3).standard_normal((policies, 40))
    verdict = judge(reference, ratio * reference)
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.high - verdict.low > 0.01


def bound_share(successes: int, trials: int) -> tuple[float, float]:
    """Clopper and Pearson's one-sided 95% limits."""
    exact = scipy_stats.binomtest(successes, trials).proportion_ci(0.90, "exact")
    return exact.low, exact.high


# --- the tie guard --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [0, 1, 3, 20])
def test_guard_is_clopper_pearson_for_all_or_nothing_returns(failures: int) -> None:
    candidate = np.ones((1, 100))
    candidate[0, :failures] = 0.0
    verdict = judge(np.ones((1, 100)), candidate, cap=1.0)
    low, high = bound_share(100 - failures, 100)
    assert verdict.low == pytest.approx(low, abs=0.004)
    assert verdict.high == pytest.approx(high, abs=0.004)


@pytest.mark.parametrize(
    ("policies", "episodes", "outcome"),
    [
        (1, 100, "supported"),
        (1, 64, "supported"),
        (1, 52, "inconclusive"),
        (1, 30, "inconclusive"),
        (3, 100, "supported"),
        (3, 80, "inconclusive"),
        (5, 80, "supported"),
        (5, 64, "inconclusive"),
    ],
)
def test_identical_returns_need_enough_episodes(policies: int, episodes: int, outcome: str) -> None:
    returns = np.full((policies, episodes), 7.0)
    verdict = judge(returns, returns)
    error = {1: 0.05, 3: 0.01, 5: 0.025}[policies]
    assert verdict.outcome == outcome
    assert verdict.low == pytest.approx(error ** (1 / episodes), abs=0.006)
    assert f"identical on all {episodes} distinct episodes; loss <= 3/{episodes}" in verdict.caveats[0]


def test_needed_episodes_follow_from_the_ties() -> None:
    returns = np.full((1, 33), 7.0)
    assert judge(returns, returns).needed == "this policy x 66 distinct episodes if the true ratio is 1.000"
    one = judge_retention(*[measure(returns[:, :5], ("a",) * 5)] * 2)
    assert one.needed == "at least 59 distinct episodes"


def test_worst_loss_widens_the_guard() -> None:
    returns = np.full((1, 100), 7.0)
    assert judge(returns, returns).outcome is Outcome.SUPPORTED
    assert judge(returns, returns, worst_loss=28.0).outcome is Outcome.INCONCLUSIVE


def test_guard_acts_on_a_reference_at_its_cap() -> None:
    reference = np.full((3, 60), 10.0)
    candidate = reference - np.random.default_rng(0).uniform(0.01, 0.1, (3, 60))
    assert judge(reference, candidate).outcome is Outcome.SUPPORTED
    capped = judge(reference, candidate, cap=10.0)
    assert capped.outcome is Outcome.INCONCLUSIVE
    assert any("cap of 10 in 100%" in caveat for caveat in capped.caveats)


# --- every start there is -------------------------------------------------------------------------------------------


def judge_all(reference: Floats, candidate: Floats, **options: float) -> Verdict:
    starts = reference.shape[1]
    return judge_retention(measure(reference, starts=starts), measure(candidate, starts=starts), **options)


@given(st.floats(0.5, 1.5), st.integers(1, 30), SEEDS)
def test_what_one_policy_keeps_on_all_starts_is_exact(kept: float, starts: int, seed: int) -> None:
    reference = np.random.default_rng(seed).uniform(1, 5, (1, starts))
    verdict = judge_all(reference, kept * reference)
    assert verdict.low == verdict.high == verdict.estimate == pytest.approx(kept)
    assume(abs(kept - 0.95) > 1e-9)
    assert verdict.outcome is (Outcome.SUPPORTED if kept > 0.95 else Outcome.REFUTED)
    assert verdict.scope == f"this policy, on all {starts} starts"
    assert verdict.needed == ""
    assert not any("unseen" in caveat or "not excluded" in caveat for caveat in verdict.caveats)
    pair = [measure(returns, starts=starts) for returns in (reference, kept * reference)]
    assert retention_p_values(*pair) == ((0.0, 1.0) if kept > 0.95 else (1.0, 0.0))


@pytest.mark.parametrize(("policies", "outcome"), [(1, "supported"), (2, "inconclusive"), (3, "supported")])
def test_a_cell_whose_games_are_all_equal(policies: int, outcome: str) -> None:
    returns = np.full((policies, 30), 7.0)
    verdict = judge_all(returns, returns)
    assert verdict.outcome == outcome
    assert verdict.caveats[0] == "identical on all 30 distinct episodes"
    # The same games, were they a sample of more.
    assert judge(returns, returns).outcome is Outcome.INCONCLUSIVE


def test_policies_whose_only_start_leaves_them_undecided_are_asked_for_more() -> None:
    reference = np.full((3, 1), 100.0)
    verdict = judge_all(reference, np.array([[96.0], [90.0], [102.0]]))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.low < verdict.estimate < verdict.high
    assert verdict.needed.startswith("about ")
    assert "policies for 80% power if the true ratio is 0.960" in verdict.needed


def test_starts_that_do_not_exist_are_not_asked_for() -> None:
    returns = np.full((1, 20), 7.0)
    some = judge_retention(*[measure(returns, starts=30)] * 2)
    assert (some.outcome, some.needed) == (Outcome.INCONCLUSIVE, "this policy on all 30 starts")
    rng = np.random.default_rng(0)
    reference = rng.uniform(1, 5, (3, 30))
    other = reference * (0.95 + 0.05 * rng.standard_normal((3, 1)))
    asked = judge_all(reference, other).needed
    assert "policies for 80% power" in asked or "more than 1000 policies" in asked
    assert "x" not in asked.split(" ")


def test_chance_in_actions_is_no_census() -> None:
    sampled = replace(measure(np.full((1, 30), 7.0), starts=30), deterministic=False)
    assert not sampled.census
    assert judge_retention(sampled, sampled).outcome is Outcome.INCONCLUSIVE
    assert Measurement.from_dict(sampled.as_dict()) == sampled


# --- what a verdict says --------------------------------------------------------------------------------------------


def test_duplicate_episodes_count_once() -> None:
    reference, candidate = draw_cell(1)
    names = tuple(f"e{i}" for i in range(20))
    once = judge_retention(measure(reference[:, :20], names), measure(candidate[:, :20], names))
    repeated = [measure(np.tile(a[:, :20], 5), names * 5) for a in (reference, candidate)]
    fivefold = judge_retention(*repeated)
    assert (fivefold.low, fivefold.high) == pytest.approx((once.low, once.high))
    assert (fivefold.episodes, fivefold.distinct_episodes) == (100, 20)
    assert "100 episodes are 20 distinct ones" in fivefold.caveats[0]


def test_one_distinct_episode_decides_nothing() -> None:
    reference, candidate = (measure(a, ("start",) * 100) for a in draw_cell(1, truth=0.5))
    verdict = judge_retention(reference, candidate)
    assert (verdict.outcome, verdict.low, verdict.high) == (Outcome.UNDECIDABLE, None, None)
    assert retention_p_values(reference, candidate) == (1.0, 1.0)
    assert decide(np.ones((1, 1)), np.ones((1, 1))) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("episodes", "wrong"), [(4, 0.0), (9, 0.0), (10, 0.07)])
def test_few_episodes_of_one_policy_decide_nothing(episodes: int, wrong: float) -> None:
    """At a true ratio of 0.95: four losses out of four are one in sixteen, and decided a tenth of all cases."""
    rng, found = np.random.default_rng(0), []
    for _ in range(600):
        reference = 1 + 0.05 * rng.standard_normal((1, episodes))
        found.append(decide(reference, 0.95 * reference + 0.1 * rng.standard_normal((1, episodes))))
    for outcome in (Outcome.SUPPORTED, Outcome.REFUTED):
        assert found.count(outcome) / len(found) <= wrong
    verdict = judge(np.full((1, episodes), 1.0), 0.5 + 0.1 * rng.random((1, episodes)))
    assert (verdict.outcome is Outcome.REFUTED) == (episodes == 10)
    assert verdict.needed == ("at least 10 distinct episodes" if episodes < 10 else "")
    hurt = reference * (0.5 + 0.1 * rng.random((1, episodes)))
    weight = retention_p_values(measure(reference), measure(hurt))[1]
    assert weight < 0.05 if episodes == 10 else weight == 1.0


def test_mean_near_zero_decides_nothing() -> None:
    rng = np.random.default_rng(0)
    reference = rng.standard_normal((3, 100))
    verdict = judge(reference, reference - 5.0)
    assert (verdict.outcome, verdict.low) == (Outcome.UNDECIDABLE, None)
    assert "standard errors of 0" in verdict.caveats[0]
    assert judge(np.zeros((3, 10)), np.ones((3, 10))).estimate is None


def test_scope_and_plan_are_stated() -> None:
    one = judge(*draw_cell(0, policies=1))
    assert one.scope == "this policy"
    assert any("one policy" in caveat for caveat in one.caveats)
    verdict = judge(*draw_cell(0, tau=0.1, policies=5))
    assert verdict.scope == "policies trained this way"
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "policies x 100 distinct episodes for 80% power" in verdict.needed
    assert "barring collapses in fewer than 3/5 of policies" in verdict.caveats
    assert judge(*draw_cell(0, truth=0.5)).needed == ""


def test_verdict_holds_built_in_types_only() -> None:
    for kind, policies in (("normal", 3), ("ceil", 1)):
        verdict = judge(*draw_cell(0, kind, policies))
        assert json.loads(json.dumps(verdict.as_dict()))["outcome"] == verdict.outcome
        assert {type(verdict.estimate), type(verdict.low), type(verdict.high)} == {float}


# --- aggregates -----------------------------------------------------------------------------------------------------


def draw_tasks(rng: np.random.Generator, drops: Floats, policies: int, kind: str = "normal") -> dict[str, list[Floats]]:
    return {
        f"task{i}": list(grid.draw_returns(Scenario(kind, policies, 0.05, 0.35, 1.0 - float(drop), 30), rng))
        for i, drop in enumerate(drops)
    }


def judge_tasks(cells: dict[str, list[Floats]], missing: tuple[str, ...] = ()) -> Verdict:
    return judge_mean_error({k: (measure(f), measure(q)) for k, (f, q) in cells.items()}, missing=missing)


def test_mean_error_keeps_its_error_rate() -> None:
    drops, rng, draws = np.linspace(-0.02, 0.12, 8), np.random.default_rng(5), 300
    outcomes = [judge_tasks(draw_tasks(rng, drops, 3)).outcome for _ in range(draws)]
    assert outcomes.count(Outcome.SUPPORTED) / draws <= find_limit(draws)
    assert outcomes.count(Outcome.REFUTED) / draws <= find_limit(draws)


def test_mean_error_of_tied_cells_keeps_its_error_rate() -> None:
    rng, draws = np.random.default_rng(11), choose(50, 300)
    outcomes = [judge_tasks(draw_tasks(rng, np.full(4, 0.05), 3, "ceilbin")).outcome for _ in range(draws)]
    assert outcomes.count(Outcome.SUPPORTED) / draws <= find_limit(draws, 0.07)


def test_mean_error_decides() -> None:
    rng = np.random.default_rng(6)
    assert judge_tasks(draw_tasks(rng, np.zeros(8), 5)).outcome is Outcome.SUPPORTED
    assert judge_tasks(draw_tasks(rng, np.full(8, 0.2), 5)).outcome is Outcome.REFUTED
    near = judge_tasks(draw_tasks(rng, np.full(3, 0.05), 3))
    assert near.outcome is Outcome.INCONCLUSIVE
    assert "policies per task" in near.needed


def test_mean_error_of_identical_returns_has_width() -> None:
    returns = np.full((3, 100), 5.0)
    verdict = judge_tasks({"a": [returns, returns], "b": [2.0 * returns, 2.0 * returns]})
    assert verdict.estimate == 0.0
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.high - verdict.low > 0.01
    single = judge_tasks({"a": [returns[:1], returns[:1]], "b": [returns[:1], returns[:1]]})
    assert (single.outcome, single.low) == (Outcome.UNDECIDABLE, None)


def test_mean_error_with_one_policy_uses_the_tasks() -> None:
    cells = draw_tasks(np.random.default_rng(7), np.linspace(0.0, 0.04, 8), 1)
    verdict = judge_tasks(cells)
    drops = [(np.mean(f) - np.mean(q)) / abs(np.mean(f)) for f, q in cells.values()]
    assert (verdict.estimate, verdict.low, verdict.high) == pytest.approx(stats.bound_mean(drops))
    assert verdict.scope == "this policy"


def test_missing_cells_make_a_partial_verdict() -> None:
    cells = draw_tasks(np.random.default_rng(8), np.zeros(4), 3)
    whole, part = judge_tasks(cells), judge_tasks(cells, ("ppo-pong-w8",))
    assert (part.outcome, part.missing) == (Outcome.PARTIAL, ("ppo-pong-w8",))
    assert (part.estimate, part.low, part.high) == (whole.estimate, whole.low, whole.high)
    nothing = judge_mean_error({}, missing=("ppo-pong-w8",))
    assert (nothing.outcome, nothing.estimate, nothing.low) == (Outcome.PARTIAL, None, None)


def test_unusable_cell_leaves_no_interval() -> None:
    cells = draw_tasks(np.random.default_rng(9), np.zeros(3), 3)
    cells["empty"] = [np.zeros((3, 30)), np.zeros((3, 30))]
    verdict = judge_tasks(cells)
    assert (verdict.outcome, verdict.low, verdict.estimate) == (Outcome.UNDECIDABLE, None, None)
    assert any("empty" in caveat for caveat in verdict.caveats)


@pytest.mark.parametrize(
    ("shift", "outcome"), [(0.0, "supported"), (0.3, "refuted"), (-0.3, "refuted"), (0.05, "inconclusive")]
)
def test_equivalence_of_two_schemes(shift: float, outcome: str) -> None:
    rng, cells = np.random.default_rng(10), {}
    for task in range(6):
        reference, first = grid.draw_returns(Scenario("normal", 5, 0.03, 0.35, 0.9), rng)
        second = first + shift + 0.05 * rng.standard_normal(first.shape)
        cells[f"task{task}"] = (measure(reference), measure(first), measure(second))
    verdict = judge_equivalence(cells)
    assert verdict.outcome == outcome
    assert verdict.estimate == pytest.approx(shift, abs=0.05)
    swapped = judge_equivalence({k: (f, b, a) for k, (f, a, b) in cells.items()})
    assert swapped.outcome == verdict.outcome
    assert swapped.estimate == pytest.approx(-float(verdict.estimate or 0.0))


# --- bad inputs -----------------------------------------------------------------------------------------------------


def test_unpaired_measurements_are_refused() -> None:
    returns = np.ones((2, 4))
    good = measure(returns)
    with pytest.raises(SpecError, match="2 reference and 1 candidate policies"):
        judge_retention(good, measure(returns[:1]))
    with pytest.raises(SpecError, match="different environment seeds"):
        judge_retention(good, measure(returns[:, :3]))
    with pytest.raises(SpecError, match="does not give the same start twice"):
        judge_retention(good, measure(returns, ("w", "x", "y", "z")))
    with pytest.raises(SpecError, match="task-a: 2 reference"):
        judge_mean_error({"task-a": (good, measure(returns[:1]))})
    with pytest.raises(SpecError, match="do not form"):
        judge_retention(measure(np.ones((0, 4))), measure(np.ones((0, 4))))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_returns_are_refused(bad: float) -> None:
    returns = np.ones((2, 4))
    returns[1, 2] = bad
    with pytest.raises(QuarlError, match="candidate: returns: 1 of 8 values are NaN or infinite"):
        judge(np.ones((2, 4)), returns)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": 1.0}, "margin"),
        ({"margin": -0.1}, "margin"),
        ({"margin": math.nan}, "margin"),
        ({"cap": 0.5}, "not below the highest measured return"),
        ({"cap": math.inf}, "cap inf"),
        ({"worst_loss": 0.0}, "worst_loss"),
        ({"worst_loss": math.nan}, "worst_loss"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        judge(np.ones((2, 4)), np.ones((2, 4)), **options)


def test_empty_aggregate_is_refused() -> None:
    with pytest.raises(SpecError, match="no cells"):
        judge_mean_error({})
    with pytest.raises(SpecError, match="threshold or margin"):
        judge_equivalence({"a": (measure(np.ones((2, 4))),) * 3}, margin=-1.0)


# --- stats ----------------------------------------------------------------------------------------------------------


def test_variance_is_the_two_way_estimate() -> None:
    values = np.array([[1.0, 2.0, 6.0], [2.0, 7.0, 9.0]])
    rows, columns = values.mean(axis=1, keepdims=True), values.mean(axis=0, keepdims=True)
    a, b = rows.var(ddof=1) / 2, columns.var(ddof=1) / 3
    c = ((values - rows - columns + values.mean()) ** 2).sum() / 2 / 6
    assert stats.estimate_variance(values) == pytest.approx(max(a + b - c, a, b))
    parts = stats.split_variance(values)
    assert parts == pytest.approx((max(0.0, 2 * (a - c)), max(0.0, 3 * (b - c)), 6 * c))
    bounds = stats.bound_contrast(values)
    assert bounds.high - bounds.estimate == pytest.approx(scipy_stats.t.ppf(0.95, 1) * math.sqrt(max(a + b - c, a, b)))
    with pytest.raises(QuarlError, match="at least 2 of each"):
        stats.estimate_variance(values[:1])


def test_components_are_recovered() -> None:
    rng = np.random.default_rng(0)
    values = 2.0 * rng.standard_normal((300, 1)) + rng.standard_normal(300) + 3.0 * rng.standard_normal((300, 300))
    assert stats.split_variance(values) == pytest.approx((4.0, 1.0, 9.0), rel=0.2)


def test_tails_mirror_the_interval() -> None:
    values = np.random.default_rng(1).standard_normal((4, 20)) + 0.3
    above, below = stats.split_tails(values)
    assert above + below == pytest.approx(1.0)
    assert stats.bound_contrast(values, above).low == pytest.approx(0.0, abs=1e-9)
    assert stats.split_tails(np.ones((2, 2))) == (0.0, 1.0)
    assert stats.split_tails(np.zeros((2, 2))) == (0.5, 0.5)


def test_weights_are_dirichlet_and_fixed() -> None:
    weights = stats.draw_weights(10)
    assert weights.shape == (stats.WEIGHT_DRAWS, 11)
    assert weights.sum(axis=1) == pytest.approx(1.0)
    assert weights.mean(axis=0) == pytest.approx(1 / 11, rel=0.05)
    assert not weights.flags.writeable
    np.testing.assert_array_equal(weights, stats.draw_weights.__wrapped__(10))
    assert stats.draw_weights(10, 4)[:, -1].mean() == pytest.approx(1 / 41, rel=0.1)


@pytest.mark.parametrize("failures", [0, 2, 10])
def test_weighted_means_give_clopper_pearson_limits(failures: int) -> None:
    values = np.ones(60)
    values[:failures] = 0.0
    low, high = bound_share(60 - failures, 60)
    assert np.quantile(stats.draw_means(values, 0.0), 0.05) == pytest.approx(low, abs=0.006)
    assert np.quantile(stats.draw_means(values, 1.0), 0.95) == pytest.approx(high, abs=0.006)


def test_stratified_welch_with_two_strata_is_welch() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.standard_normal(5), 3.0 * rng.standard_normal(8) + 1.0
    interval = stats.average_strata(
        [first.mean(), -second.mean()], [first.var(ddof=1) / 5, second.var(ddof=1) / 8], [4, 7]
    )
    welch = scipy_stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.90)
    assert (interval.low, interval.high) == pytest.approx((welch.low / 2, welch.high / 2))
    assert stats.average_strata([1.0], [0.0], [2]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(("policies", "tau", "spread", "power"), [(3, 0.05, 0.0, 0.78), (3, 0.10, 0.05, 0.38)])
def test_stratified_welch_error_and_power(policies: int, tau: float, spread: float, power: float) -> None:
    rng, draws = np.random.default_rng(3), 2000
    tasks = spread * scipy_stats.zscore(np.arange(8.0))

    def sample(mean: float) -> stats.Interval:
        drops = mean + tasks[:, None] + math.hypot(tau, 0.02) * rng.standard_normal((8, policies))
        return stats.average_strata(drops.mean(axis=1), drops.var(axis=1, ddof=1) / policies, [policies - 1] * 8)

    null = [sample(0.05) for _ in range(draws)]
    assert np.mean([i.high < 0.05 for i in null]) <= find_limit(draws, 0.05)
    assert np.mean([i.low > 0.05 for i in null]) <= find_limit(draws, 0.05)
    assert np.mean([sample(0.02).high < 0.05 for _ in range(draws)]) == pytest.approx(power, abs=0.09)


def test_t_over_tasks_matches_scipy() -> None:
    values = np.array([0.01, 0.03, -0.02, 0.08])
    expected = scipy_stats.ttest_1samp(values, 0.0).confidence_interval(0.90)
    assert stats.bound_mean(values)[1:] == pytest.approx((expected.low, expected.high))
    with pytest.raises(QuarlError, match="at least 2 are needed"):
        stats.bound_mean([0.1])


def test_a_ratio_and_its_inverse_have_inverse_intervals() -> None:
    ratios = np.array([0.5, 0.8, 0.7])
    found, inverse = stats.bound_ratio(ratios), stats.bound_ratio(1 / ratios)
    assert found.estimate == pytest.approx(scipy_stats.gmean(ratios))
    assert found == pytest.approx((1 / inverse.estimate, 1 / inverse.high, 1 / inverse.low))


def test_partial_conjunction_known_values() -> None:
    assert stats.combine_cells([0.01, 0.02, 0.30], 1) == pytest.approx(0.03)
    assert stats.combine_cells([0.01, 0.02, 0.30], 2) == pytest.approx(0.04)
    assert stats.combine_cells([0.01, 0.02, 0.30], 3) == pytest.approx(0.30)
    for bad in (0, 4):
        with pytest.raises(QuarlError, match="required"):
            stats.combine_cells([0.1, 0.1, 0.1], bad)
    with pytest.raises(QuarlError, match=r"lie in 0\.\.1"):
        stats.combine_cells([1.2], 1)


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_partial_conjunction_keeps_its_error_rate(shared: float) -> None:
    rng, draws = np.random.default_rng(4), 2000
    effects = np.array([8.0] * 15 + [0.0] * 5)  # 15 true wins where 16 are claimed

    def sample(shift: Floats) -> float:
        noise = math.sqrt(shared) * rng.standard_normal() + math.sqrt(1.0 - shared) * rng.standard_normal(20)
        return stats.combine_cells(scipy_stats.norm.sf(shift + noise), 16)

    assert np.mean([sample(effects) < 0.05 for _ in range(draws)]) <= find_limit(draws, 0.05)
    assert np.mean([sample(np.full(20, 4.0)) < 0.05 for _ in range(draws)]) > 0.9


def test_sign_flips_known_values() -> None:
    assert stats.flip_signs([1.0, 2.0, 3.0, 4.0, 5.0]) == (1 / 32, 1.0)
    assert stats.flip_signs([-1.0, -2.0, -3.0, -4.0])[1] == 1 / 16
    assert stats.flip_signs([0.0, 0.0]) == (1.0, 1.0)
    assert stats.flip_signs([0.1, 0.2, -0.3])[0] == pytest.approx(5 / 8)  # 0.1 + 0.2 - 0.3 is not 0 in floating point
    with pytest.raises(QuarlError, match="at most 20"):
        stats.flip_signs(np.ones(21))


def test_sign_flip_error_and_power() -> None:
    rng, draws = np.random.default_rng(5), 2000
    null = np.array([stats.flip_signs(rng.standard_normal(8)) for _ in range(draws)])
    assert (null < 0.05).mean(axis=0).max() <= find_limit(draws, 0.05)
    power = np.mean([stats.flip_signs(1.0 + rng.standard_normal(8))[0] < 0.05 for _ in range(draws)])
    assert power == pytest.approx(0.80, abs=0.04)


def test_stars_follow_benjamini_hochberg() -> None:
    rng = np.random.default_rng(6)
    up = np.concatenate([rng.uniform(0, 1e-3, 10), rng.uniform(size=30), 1 - rng.uniform(0, 1e-3, 5)])
    both = np.minimum(1.0, 2.0 * np.minimum(up, 1 - up))
    expected = scipy_stats.false_discovery_control(both) <= 0.05
    stars = stats.star_discoveries(up, 1 - up)
    assert [star != 0 for star in stars] == expected.tolist()
    assert set(stars[:10]) == {1}
    assert set(stars[-5:]) == {-1}
    assert all(type(star) is int for star in stars)
    assert stats.star_discoveries([0.5], [0.5]) == (0,)
    with pytest.raises(QuarlError, match="p-values one way"):
        stats.star_discoveries([0.5], [0.5, 0.5])


@pytest.mark.parametrize(
    ("tau", "needed"), [(0.0, (4, 6, 2)), (0.02, (5, 8, 3)), (0.05, (9, 23, 3)), (0.10, (28, 74, 5))]
)
def test_needed_policies_match_known_values(tau: float, needed: tuple[int, ...]) -> None:
    noise = 0.04 * (1.0 + 0.95**2 - 2 * 0.95 * 0.35) / 100
    counts = [stats.count_policies(effect, tau**2 + noise) for effect in (0.05, 0.03, -0.15)]
    for count, expected in zip(counts, needed, strict=True):
        assert count is not None
        assert abs(count - expected) <= max(1, 0.05 * expected)


def test_needed_policies_reach_the_power() -> None:
    rng = np.random.default_rng(7)
    count = stats.count_policies(1.0, 4.0)
    assert count is not None
    samples = 1.0 + 2.0 * rng.standard_normal((4000, count))
    t = samples.mean(axis=1) / samples.std(axis=1, ddof=1) * math.sqrt(count)
    assert (t > stats.find_t_quantile(count - 1)).mean() == pytest.approx(0.80, abs=0.04)
    assert stats.count_policies(0.0, 1.0) is None
    assert stats.count_policies(1.0, 0.0) == 2
    assert stats.count_policies(1.0, 1.0, shared=1.0) is None
    assert (stats.count_policies(1.0, 4.0, strata=8) or 99) < count


def test_merged_columns_are_means() -> None:
    merged = stats.merge_columns(np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), ["b", "a", "b"])
    np.testing.assert_array_equal(merged, [[2.0, 2.0], [5.0, 5.0]])
