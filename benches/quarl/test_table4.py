"""QuaRL, Table 4 and Figure 4: int8 policies are faster and smaller on the machine that flies them (section 5)."""

import pytest


@pytest.mark.claim("table4-speed")
def test_int8_is_faster(case, board_run, times_regression, board_verdict):
    times_regression.check(board_run)
    board_verdict.check(board_run)


@pytest.mark.claim("table4-eighteenfold", "table4-fourteenfold")
def test_int8_is_as_many_times_as_fast(case, board_run, board_verdict):
    board_verdict.check(board_run)


@pytest.mark.claim("table4-memory")
def test_int8_is_a_quarter_of_the_size(case, board_run, board_verdict):
    board_verdict.check(board_run)


@pytest.mark.claim("table4-resident")
def test_int8_takes_a_quarter_of_the_memory(case, board_run, board_verdict):
    board_verdict.check(board_run)


@pytest.mark.claim("table4-rate")
def test_int8_acts_as_often_as_the_drone_needs(case, board_run, board_verdict):
    board_verdict.check(board_run)


@pytest.mark.claim("figure4-exceeds")
def test_fp32_takes_more_memory_than_the_board_has(case, board_run, board_verdict):
    board_verdict.check(board_run)


@pytest.mark.claim("figure4-cliff")
def test_fp32_swaps_where_int8_fits(case, limited_run, board_verdict):
    board_verdict.check_limited(limited_run)


@pytest.mark.claim("table4-growth")
def test_larger_policies_gain_more(claim, board_runs, board_verdict):
    board_verdict.check_policies(board_runs)


@pytest.mark.claim("table4-success")
def test_int8_costs_success(case, policy, quantized_policy, evaluate, metrics_regression, verdict):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy), policies=policy)
