"""QuaRL, Table 5: mixed-precision training pays for large policies, not for small ones (section 5)."""

import pytest


@pytest.mark.claim("table5-small")
def test_a_small_policy_gains_nothing(case, times, step_time_regression, step_time_verdict):
    step_time_regression.check(times)
    step_time_verdict.check(times)


@pytest.mark.claim("table5-small-half")
def test_a_small_policy_gains_nothing_in_fp16(case, times, step_time_regression, step_time_verdict):
    step_time_regression.check(times)
    step_time_verdict.check(times)


@pytest.mark.claim("table5-large")
def test_a_large_policy_trains_faster(case, times, step_time_regression, step_time_verdict):
    step_time_regression.check(times)
    step_time_verdict.check(times)


@pytest.mark.claim("table5-large-half")
def test_a_large_policy_trains_faster_in_fp16(case, times, step_time_regression, step_time_verdict):
    step_time_regression.check(times)
    step_time_verdict.check(times)


@pytest.mark.claim("table5-half-again")
def test_the_largest_policy_trains_half_again_as_fast(case, times, step_time_verdict):
    step_time_verdict.check(times)


@pytest.mark.claim("table5-half-again-half")
def test_the_largest_policy_trains_half_again_as_fast_in_fp16(case, times, step_time_verdict):
    step_time_verdict.check(times)


@pytest.mark.claim("table5-rises")
def test_the_larger_the_policy_the_larger_the_gain(claim, times, step_time_verdict):
    step_time_verdict.check_sizes(times)


@pytest.mark.claim("table5-rises-half")
def test_the_larger_the_policy_the_larger_the_gain_in_fp16(claim, times, step_time_verdict):
    step_time_verdict.check_sizes(times)


@pytest.mark.claim("table5-exceeds")
def test_the_largest_gains_more_than_the_smallest(claim, times, step_time_verdict):
    step_time_verdict.check_sizes(times)


@pytest.mark.claim("table5-exceeds-half")
def test_the_largest_gains_more_than_the_smallest_in_fp16(claim, times, step_time_verdict):
    step_time_verdict.check_sizes(times)
