"""QuaRL, Table 3 and Figure 2: what 8 bits do to DQN on Breakout, and whether the spread of the weights tells."""

import pytest


@pytest.mark.claim("table3-rescue")
def test_16_bits_rescue_dqn_on_breakout(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("table3-dqn-over-ppo", "table3-dqn-over-a2c", "table3-ppo-over-a2c")
def test_algorithms_lose_in_the_papers_order(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("figure2-tracks", "figure2-tracks-error")
def test_error_grows_with_the_spread(claim, cells, verdict):
    verdict.check_cells(cells)
