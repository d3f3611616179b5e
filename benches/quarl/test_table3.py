"""QuaRL, Table 3 and Figure 2: what 8 bits do to DQN on Breakout, and whether the spread of the weights tells."""

import pytest


@pytest.mark.claim(
    "table3-rescue",
    "table3-dqn-over-ppo",
    "table3-dqn-over-a2c",
    "table3-ppo-over-a2c",
    "figure2-breakout-over-beamrider",
    "figure2-beamrider-over-pong",
    "figure2-tracks",
    "figure2-tracks-error",
)
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)
