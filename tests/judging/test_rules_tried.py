"""Rules that were tried in the judge's place, on a small part of the simulated grid."""

import numpy as np
import pytest

from quarl_bench.judging import statistics as stats
from quarl_bench.judging.pairs import decide
from quarl_bench.spec import Outcome
from tests.support import judge_rules as rules
from tests.support.judge_simulation import MARGIN, Scenario, draw_returns

DRAWS = 60


@pytest.fixture(scope="module")
def cells():
    return rules.draw_all(3, DRAWS)


def test_the_judges_own_is_the_judges(cells):
    """Without the tie guard, which no continuous kind asks."""
    scenario = Scenario("normal", 3, 0.0, rules.POWER_RHO, 1.0)
    rng = np.random.default_rng(scenario.seed())
    outcomes = [decide(*draw_returns(scenario, rng), MARGIN) for _ in range(DRAWS)]
    supported, refuted = rules.count(cells, rules.keep, stats.ERROR)[scenario]
    assert supported == outcomes.count(Outcome.SUPPORTED) / DRAWS > 0
    assert refuted == outcomes.count(Outcome.REFUTED) / DRAWS


def test_a_shared_variance_errs_more_often_and_is_made_to_err_less(cells):
    allowed = rules.find_errors(rules.count(cells, rules.keep, stats.ERROR))
    assert max(rules.find_errors(rules.count(cells, rules.pool, stats.ERROR)).values()) > max(allowed.values())
    assert rules.calibrate(cells, rules.keep, allowed) == stats.ERROR
    assert rules.calibrate(cells, rules.pool, allowed) < stats.ERROR


def test_degrees_of_freedom_are_never_fewer_than_the_policies_give(cells):
    for drawn in cells.values():
        for name, rule in rules.RULES.items():
            variance, dof = rule(drawn, 3, 100)
            assert (dof >= 2.0 - 1e-12).all(), name
            assert (variance >= drawn.episode).all(), name
