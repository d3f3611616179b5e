"""Counting cells: partial conjunctions as verdicts, with their error rates."""

import math

import numpy as np
import pytest
import scipy.stats

from quarl_bench.errors import QuarlError, SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.average import judge_equivalence, judge_mean_error
from quarl_bench.judging.census import judge_most_cells, judge_some_cells
from quarl_bench.judging.claim import over
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.modes import describe
from quarl_bench.judging.pairs import find_error
from quarl_bench.judging.retention import judge_harder, judge_loss
from quarl_bench.judging.rules.returns import Equivalent, Harder, Loses, MeanError, MostCells
from quarl_bench.judging.rules.training import Wider
from quarl_bench.spec import Measurement, Outcome
from tests.support.claims import make_item
from tests.support.measurements import measure_all
from tests.support.sizes import choose

RUNS = choose(60, 150)
FEW_WRONG = scipy.stats.binom.isf(1.5e-3, RUNS, 0.05)  # exceeded as rarely


def make_cell(rng, ratio, policies=8, episodes=60):
    reference = 100 * (1 + 0.05 * rng.normal(size=(policies, episodes)))
    candidate = ratio * reference + rng.normal(size=(policies, episodes))
    return measure_all(reference), measure_all(candidate)


def make_cells(seed, ratios):
    rng = np.random.default_rng(seed)
    return {f"cell{i}": make_cell(rng, ratio) for i, ratio in enumerate(ratios)}


@pytest.mark.parametrize(
    ("ratios", "outcome"),
    [
        ([1.0] * 10, Outcome.SUPPORTED),
        ([1.0] * 8 + [0.5] * 2, Outcome.SUPPORTED),
        ([1.0] * 7 + [0.5] * 3, Outcome.REFUTED),
        ([0.5] * 10, Outcome.REFUTED),
        ([0.95] * 10, Outcome.INCONCLUSIVE),
    ],
)
def test_shares_of_cells(ratios, outcome):
    verdict = judge_most_cells(make_cells(0, ratios))
    assert verdict.outcome is outcome
    assert (verdict.low >= 0.8) == (outcome is Outcome.SUPPORTED)
    assert (verdict.high < 0.8) == (outcome is Outcome.REFUTED)


def test_missing_cells_make_it_partial():
    verdict = judge_most_cells(make_cells(0, [1.0]), missing=("a", "b"))
    assert (verdict.outcome, verdict.missing) == (Outcome.PARTIAL, ("a", "b"))
    assert judge_most_cells({}, missing=("a",)).low is None
    with pytest.raises(SpecError, match="no cells"):
        judge_most_cells({})


@pytest.mark.parametrize(
    ("ratios", "missing", "outcome", "share"),
    [
        ([1.05] + [0.9] * 9, 0, Outcome.SUPPORTED, (0.1, 0.1)),
        ([1.05] + [0.9] * 9, 10, Outcome.SUPPORTED, (0.05, 0.55)),
        ([0.9] * 10, 0, Outcome.REFUTED, (0.0, 0.0)),
        ([0.9] * 10, 10, Outcome.PARTIAL, (0.0, 0.5)),
        ([0.9] * 9 + [1.0], 0, Outcome.INCONCLUSIVE, (0.0, 0.1)),
    ],
)
def test_some_cells_return_more(ratios, missing, outcome, share):
    verdict = judge_some_cells(make_cells(0, ratios), missing=[f"m{i}" for i in range(missing)])
    assert (verdict.outcome, verdict.low, verdict.high) == (outcome, *map(pytest.approx, share))


def test_equal_cells_return_no_more():
    pair = make_cell(np.random.default_rng(0), 1.0)[:1] * 2
    verdict = judge_some_cells(dict.fromkeys("abc", pair))
    assert (verdict.outcome, verdict.estimate) == (Outcome.INCONCLUSIVE, 0.0)


def test_some_cells_are_rarely_found_where_none_returns_more():
    """Twenty equal cells: the best of them looks better, and at least one is called so in 5% of the runs."""
    wrong = sum(judge_some_cells(make_cells(seed, [1.0] * 20)).outcome is Outcome.SUPPORTED for seed in range(RUNS))
    assert wrong <= FEW_WRONG


def test_cells_at_the_margin_are_rarely_called_supported():
    """7 of 10 cells are fine and 3 lie exactly at the margin: "at least 8" is false; errors stay near 5%."""
    wrong = sum(
        judge_most_cells(make_cells(seed, [1.0] * 7 + [0.95] * 3)).outcome is Outcome.SUPPORTED for seed in range(RUNS)
    )
    assert wrong <= FEW_WRONG


def test_sentences_over_cells_know_the_highest_return():
    """All fp32 episodes are at the cap: how far an unseen one may fall, t over three policies cannot know."""
    rng, shape = np.random.default_rng(0), (3, 100)
    at_cap, below = (measure_all(values) for values in (np.full(shape, 500.0), rng.uniform(465, 498, shape)))
    pair, caps = {"ppo-cartpole-w8": (at_cap, below)}, {"ppo-cartpole-w8": 500.0}
    assert judge_most_cells(pair).outcome is Outcome.SUPPORTED
    assert judge_most_cells(pair, caps=caps).outcome is Outcome.INCONCLUSIVE
    assert judge_loss((at_cap, below)).outcome is Outcome.REFUTED
    assert judge_loss((at_cap, below), cap=500.0).outcome is Outcome.INCONCLUSIVE
    widths = [v.high - v.low for v in (judge_mean_error(pair), judge_mean_error(pair, caps=caps))]
    assert widths[1] > 2 * widths[0]
    triple = dict.fromkeys(pair, (at_cap, below, at_cap))
    widths = [v.high - v.low for v in (judge_equivalence(triple), judge_equivalence(triple, caps=caps))]
    assert widths[1] > 2 * widths[0]


TWO_TASKS = over("dqn", "cartpole acrobot")


@pytest.mark.parametrize("judgement", [MostCells(0.05), MeanError(0.05), Loses(0.05, "fp32")])
def test_the_highest_return_comes_from_the_environment(judgement):
    rng, shape = np.random.default_rng(0), (3, 100)
    at_cap, below = (measure_all(values) for values in (np.full(shape, 500.0), rng.uniform(465, 498, shape)))
    item = make_item(judgement, cells=TWO_TASKS)
    cells = {case.id: (at_cap, below, at_cap)[: 3 if item.against else 2] for case in item.cases[:1]}
    assert judgement.decide(item, Evidence(cells, policies=3)).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("policies", [1, 4])
def test_two_cells_of_equal_losses_decide_as_seldom_as_they_say(policies):
    """Both lose a tenth; of the one policy the episodes, of four the policies are what the noise is between."""
    rng, draws, outcomes = np.random.default_rng(3), choose(80, 200), []
    for _ in range(draws):
        kept = 0.9 + 0.03 * rng.normal(size=(2, policies, 1)) * (policies > 1)
        base = 100 * (1 + 0.2 * rng.normal(size=(2, policies, 30)))
        other = kept * base + 10 * rng.normal(size=base.shape)
        cells = [tuple(map(measure_all, pair)) for pair in zip(base, other, strict=True)]
        outcomes.append(judge_harder(*cells).outcome)
    allowed = scipy.stats.binom.isf(1e-4, draws, 0.06)
    assert max(outcomes.count(Outcome.SUPPORTED), outcomes.count(Outcome.REFUTED)) <= allowed


def test_the_first_of_two_cells_is_harder():
    rng = np.random.default_rng(0)
    hard, easy = make_cell(rng, 0.6, policies=3), make_cell(rng, 0.95, policies=3)
    verdict, other = judge_harder(hard, easy), judge_harder(easy, hard)
    assert (verdict.outcome, other.outcome) == (Outcome.SUPPORTED, Outcome.REFUTED)
    assert 0 < verdict.low < verdict.estimate < verdict.high
    assert verdict.estimate == pytest.approx(0.35, abs=0.01)
    assert (other.low, other.high) == pytest.approx((-verdict.high, -verdict.low))
    assert judge_harder(hard, easy, threshold=0.3).outcome is Outcome.SUPPORTED
    assert judge_harder(hard, easy, threshold=0.4).outcome is Outcome.REFUTED
    item = make_item(Harder(0.0), cells=over("dqn", "cartpole breakout"))
    found = dict(zip((case.id for case in item.cases), (hard, easy), strict=True))
    assert (item.id, Harder(0.0).decide(item, Evidence(found)).outcome) == ("all-x-w8", Outcome.SUPPORTED)
    partial = judge_harder(hard, None, missing=("dqn-breakout-w8",))
    assert (partial.outcome, partial.estimate) == (Outcome.PARTIAL, None)


@pytest.mark.parametrize(
    "judgement", [MostCells(0.05), Wider(1.05, "ppo"), MeanError(0.05), Equivalent(0.05, "fp16"), Harder(0.05)]
)
def test_every_judgement_decides(judgement):
    schemes = ("rmse8",) if isinstance(judgement, Wider) else ("w8",)
    item = make_item(judgement, schemes=schemes, cells=TWO_TASKS)
    cells = make_cells(0, [1.0, 0.99])
    triples = {name: (*pair, pair[1]) for name, pair in cells.items()}
    measured = Evidence(triples if item.against else cells, ratios={"a": 2.0, "b": 3.0}, policies=8)
    assert describe(judgement.decide(item, measured))


@pytest.mark.parametrize("size", [5, 8, 12])
def test_rank_correlations_are_spearmans(size):
    rng = np.random.default_rng(size)
    first, second = rng.normal(size=size), rng.integers(0, 4, size=size)
    rho, (above, below) = stats.correlate_ranks(first, second)
    assert rho == pytest.approx(scipy.stats.spearmanr(first, second).statistic)
    assert above + below >= 1.0


def test_ranks_in_perfect_order_are_as_surprising_as_their_number_allows():
    assert stats.correlate_ranks(range(5), range(5)) == (pytest.approx(1.0), (1 / 120, 1.0))
    assert stats.correlate_ranks(range(5), [1] * 5) == (0.0, (1.0, 1.0))
    assert stats.correlate_ranks(range(12), range(12))[1][0] == 1 / 20_001
    with pytest.raises(QuarlError, match="need pairs"):
        stats.correlate_ranks([1.0], [1.0])


def test_permutations_reject_true_nulls_in_their_share():
    rng = np.random.default_rng(0)
    draws = [stats.correlate_ranks(*rng.normal(size=(2, 7)))[1][0] for _ in range(400)]
    assert np.mean(np.array(draws) <= 0.05) == pytest.approx(0.05, abs=0.03)


def test_errors_count_an_episode_once():
    """Atari's starts repeat: a common one must not weigh more than in the interval."""
    names, seeds = ("x", "x", "x", "y"), (0, 1, 2, 3)

    def make(*rows):
        return Measurement(("a", "b"), seeds, names, rows, ((1,) * 4,) * 2)

    reference = make((10.0, 10.0, 10.0, 100.0), (11.0, 11.0, 11.0, 101.0))
    measured = make((0.0, 0.0, 0.0, 100.0), (0.0, 0.0, 0.0, 101.0))
    assert find_error(reference, measured) == pytest.approx(21 / 222)
    assert find_error(make((1.0,) * 4, (-1.0,) * 4), measured) == math.inf
