"""Returns against bits: which widths keep a return, how often that is wrong, and what a cell's curve looks like."""

from types import SimpleNamespace

import numpy as np
import pytest

from quarl_bench.errors import SpecError
from quarl_bench.judging import statistics as stats
from quarl_bench.judging.claim import expand_claims, over
from quarl_bench.judging.evidence import Evidence
from quarl_bench.judging.rules.widths import Fewest, SweetSpots
from quarl_bench.judging.widths import FULL, find_fewest_bits
from quarl_bench.spec import Outcome
from tests.support.claims import make_claim
from tests.support.measurements import measure_all
from tests.support.sizes import choose

BITS = (2, 3, 4, 6, 8, 10, 12)
SCHEMES = tuple(f"w{bits}" for bits in BITS)
FEWEST = Fewest(8.0, margin=0.05)


def items(judgement, cells=(("ppo", "cartpole"),)):
    return list(expand_claims(make_claim(judgement, schemes=SCHEMES, cells=cells, slug="bits")))


def play(*means, seed=0):
    """Six policies that return 100 in fp32, and under each scheme these means; paired but for some noise."""
    rng = np.random.default_rng(seed)
    plain = 100 + rng.normal(size=(6, 40))
    return [(measure_all(plain), measure_all(plain + mean - 100 + 0.5 * rng.normal(size=(6, 40)))) for mean in means]


def show(item, *means):
    pairs = play(*means)
    return Evidence({case.id: pair for case, pair in zip(item.cases, pairs, strict=True)}, policies=6)


@pytest.mark.parametrize(
    ("means", "bits", "outcome"),
    [
        ((10, 40, 60, 99, 100, 100, 100), 6, Outcome.SUPPORTED),
        ((100, 100, 100, 100, 100, 100, 100), 2, Outcome.SUPPORTED),
        ((10, 40, 60, 70, 80, 99, 100), 10, Outcome.REFUTED),
        ((10, 40, 60, 70, 80, 80, 80), FULL, Outcome.REFUTED),
        ((10, 99, 60, 99, 99, 99, 99), 6, Outcome.SUPPORTED),  # not monotone: from 6 bits on all widths keep
    ],
)
def test_the_fewest_bits_are_those_from_which_on_every_width_keeps(means, bits, outcome):
    (item,) = items(FEWEST)
    verdict = FEWEST.decide(item, show(item, *means))
    assert (verdict.outcome, verdict.estimate) == (outcome, bits)
    assert verdict.low <= verdict.estimate <= verdict.high
    assert (verdict.high <= 8) == (outcome is Outcome.SUPPORTED)
    assert (verdict.low > 8) == (outcome is Outcome.REFUTED)


def test_a_width_at_the_threshold_leaves_it_open():
    (item,) = items(FEWEST)
    verdict = FEWEST.decide(item, show(item, 10, 40, 60, 70, 95, 99, 100))
    assert (verdict.outcome, verdict.low, verdict.high) == (Outcome.INCONCLUSIVE, 8, 10)
    assert verdict.needed == "more policies"


def test_a_cell_is_an_item_with_its_environment_and_one_without_policies_is_partial():
    found = items(FEWEST, over("ppo dqn", "cartpole acrobot"))
    assert [item.id for item in found] == [
        "ppo-cartpole-bits", "ppo-acrobot-bits", "dqn-cartpole-bits", "dqn-acrobot-bits"
    ]  # fmt: skip
    verdict = FEWEST.decide(found[1], Evidence(missing=("ppo-acrobot",)))
    assert (verdict.outcome, verdict.estimate, verdict.missing) == (Outcome.PARTIAL, None, ("ppo-acrobot",))


@pytest.mark.parametrize("true", range(len(BITS)))
def test_either_end_of_the_bits_is_wrong_at_5_percent(true):
    """From `true` on widths keep the return, below they lose it, all by a hair: the wrong p-value is uniform."""
    rng, draws, wrong = np.random.default_rng(true), choose(4000, 40_000), np.zeros(2)
    for _ in range(draws):
        p = rng.random(len(BITS))
        p_values = {bits: (0.0, p[i]) if i >= true else (p[i], 0.0) for i, bits in enumerate(BITS)}
        found = find_fewest_bits(dict.fromkeys(BITS, 1.0), p_values, 0.05)
        wrong += (found.low > BITS[true], found.high < BITS[true])
    assert (wrong / draws <= stats.ERROR + 3 * (0.05 * 0.95 / draws) ** 0.5).all()


def test_one_width_of_one_cell_that_gains_supports_a_sweet_spot_and_losses_refute_it():
    judgement = SweetSpots(0.0)
    (item,) = items(judgement, over("ppo", "acrobot mountaincarcontinuous"))
    flat, gain, lose = (100,) * 7, (10, 40, 103, 100, 100, 100, 100), (10, 20, 40, 60, 80, 97, 98)
    outcomes = [judgement.decide(item, show(item, *a, *b)) for a, b in ((flat, gain), (lose, lose))]
    assert [found.outcome for found in outcomes] == [Outcome.SUPPORTED, Outcome.REFUTED]
    assert "ppo-mountaincarcontinuous +3.0% at 4" in outcomes[0].caveats[1]
    assert outcomes[1].estimate == outcomes[1].high == 0


def test_seven_widths_are_seven_chances_and_make_no_more_errors():
    """Nothing gains on average: of many cells at most 5% seem to, whichever width looks best."""
    judgement, wrong, draws = SweetSpots(0.0), 0, choose(60, 600)
    (item,) = items(judgement)
    for seed in range(draws):
        pairs = play(*(100,) * 7, seed=seed)
        found = Evidence({case.id: pair for case, pair in zip(item.cases, pairs, strict=True)}, policies=6)
        wrong += judgement.decide(item, found).outcome is Outcome.SUPPORTED
    assert wrong / draws <= stats.ERROR + 3 * (0.05 * 0.95 / draws) ** 0.5


def test_what_is_missing_leaves_sweet_spots_open_unless_another_cell_has_one():
    judgement = SweetSpots(0.0)
    (item,) = items(judgement, over("ppo", "acrobot"))
    gone = Evidence(missing=("ppo-acrobot",))
    assert judgement.decide(item, gone).outcome is Outcome.PARTIAL
    assert judgement.show(item, gone) == []


def test_a_cell_of_which_a_width_was_not_trained_is_missing():
    (item,) = expand_claims(make_claim(FEWEST, schemes=("qat4", "qat8"), cells=over("ppo", "cartpole"), slug="bits"))

    def quantize(policies, scheme):
        if scheme == "qat4":
            raise SpecError("no recipe for it")
        return policies

    measured = measure_all(np.full((3, 30), 100.0))
    cells = SimpleNamespace(find_policies=lambda *_: "policies", quantize=quantize, measure=lambda _: measured)
    evidence = FEWEST.collect(cells, item)
    assert (evidence.measurements, evidence.missing) == ({}, ("ppo-cartpole-qat4",))
    assert FEWEST.decide(item, evidence).outcome is Outcome.PARTIAL


def test_the_page_shows_a_curve_for_every_cell():
    (item,) = items(FEWEST)
    (panel,) = FEWEST.show(item, show(item, 10, 40, 60, 99, 100, 100, 100))
    (points,) = panel.series.values()
    assert [point.x for point in points] == [float(bits) for bits in BITS]
    assert points[0].mean == pytest.approx(10, abs=0.5)
    assert panel.band.mean == pytest.approx(100, abs=0.5)


def test_a_threshold_that_no_width_has_is_one_line():
    told = "claim 'x', field 'schemes': no scheme has 5 bits, which is the threshold; these have 2, 3, 4, 6, 8"
    with pytest.raises(SpecError, match=rf"^{told}$"):
        make_claim(Fewest(5.0, margin=0.05), schemes=("w2", "w3", "w4", "w6", "w8"))


@pytest.mark.parametrize(
    ("judgement", "message"),
    [
        (Fewest(float("nan"), margin=0.05), "claim 'x', field 'judgement': threshold nan must be a finite number"),
        (Fewest(8.0, margin=1.5), "claim 'x', field 'judgement': margin 1.5 must be at least 0 and below 1"),
        (SweetSpots(-0.1), "claim 'x', field 'judgement': threshold -0.1 must be at least 0 and below 1"),
    ],
)
def test_bits_and_margins_out_of_range_are_one_line(judgement, message):
    with pytest.raises(SpecError, match=rf"^{message}$"):
        make_claim(judgement)
