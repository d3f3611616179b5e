"""QuaRL, Table 5: mixed-precision training pays for large policies, not for small ones (section 5)."""

import pytest


@pytest.mark.claim("table5-small", "table5-small-half", "table5-large", "table5-large-half")
def test_only_large_policies_train_faster(case, times, step_time_regression, step_time_verdict):
    step_time_regression.check(times)
    step_time_verdict.check(times)


@pytest.mark.claim("table5-half-again", "table5-half-again-half", "table5-sixty")
def test_the_largest_policy_trains_as_many_times_as_fast(case, times, step_time_verdict):
    step_time_verdict.check(times)


@pytest.mark.claim("table5-rises", "table5-rises-half", "table5-exceeds", "table5-exceeds-half")
def test_larger_policies_gain_more(claim, times, step_time_verdict):
    step_time_verdict.check_sizes(times)
