"""QuaRL, Table 5: mixed-precision training pays for large policies, not for small ones (section 5)."""

import pytest


@pytest.mark.claim("table5-small")
def test_a_small_policy_gains_nothing(case, paces, pace_regression, pace_verdict):
    pace_regression.check(paces)
    pace_verdict.check(paces)


@pytest.mark.claim("table5-small-half")
def test_a_small_policy_gains_nothing_in_fp16(case, paces, pace_regression, pace_verdict):
    pace_regression.check(paces)
    pace_verdict.check(paces)


@pytest.mark.claim("table5-large")
def test_a_large_policy_trains_faster(case, paces, pace_regression, pace_verdict):
    pace_regression.check(paces)
    pace_verdict.check(paces)


@pytest.mark.claim("table5-large-half")
def test_a_large_policy_trains_faster_in_fp16(case, paces, pace_regression, pace_verdict):
    pace_regression.check(paces)
    pace_verdict.check(paces)


@pytest.mark.claim("table5-half-again")
def test_the_largest_policy_trains_half_again_as_fast(case, paces, pace_verdict):
    pace_verdict.check(paces)


@pytest.mark.claim("table5-half-again-half")
def test_the_largest_policy_trains_half_again_as_fast_in_fp16(case, paces, pace_verdict):
    pace_verdict.check(paces)


@pytest.mark.claim("table5-rises")
def test_the_larger_the_policy_the_larger_the_gain(claim, paces, pace_verdict):
    pace_verdict.check_sizes(paces)


@pytest.mark.claim("table5-rises-half")
def test_the_larger_the_policy_the_larger_the_gain_in_fp16(claim, paces, pace_verdict):
    pace_verdict.check_sizes(paces)


@pytest.mark.claim("table5-exceeds")
def test_the_largest_gains_more_than_the_smallest(claim, paces, pace_verdict):
    pace_verdict.check_sizes(paces)


@pytest.mark.claim("table5-exceeds-half")
def test_the_largest_gains_more_than_the_smallest_in_fp16(claim, paces, pace_verdict):
    pace_verdict.check_sizes(paces)
