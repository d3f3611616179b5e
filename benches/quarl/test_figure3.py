"""QuaRL, Figure 3 and Table 3: the training algorithm decides how wide the weights are spread."""

import pytest


@pytest.mark.claim("spread-over-ppo", "spread-over-a2c", "spread-over-ppo-control")
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)
