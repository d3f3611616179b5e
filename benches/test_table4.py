"""QuaRL, Table 4 and Figure 4: int8 policies are faster and smaller on the machine that flies them (section 5)."""

import pytest


@pytest.mark.claim("table4-speed")
def test_int8_is_faster(case, board_run, times_regression, board_verdict):
    times_regression.check(board_run)
    board_verdict.check_speed(board_run)


@pytest.mark.claim("table4-memory")
def test_int8_is_a_quarter_of_the_size(case, board_run, board_verdict):
    board_verdict.check_size(board_run)
