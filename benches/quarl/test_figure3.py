"""QuaRL, Figure 3 and Table 3: the training algorithm decides how wide the weights are spread."""

import pytest


@pytest.mark.claim("spread-over-ppo")
def test_weights_are_wider_than_those_of_ppo(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("spread-over-a2c")
def test_weights_are_wider_than_those_of_a2c(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("spread-over-ppo-control")
def test_weights_are_wider_at_equal_networks(claim, cells, verdict):
    verdict.check_cells(cells)
