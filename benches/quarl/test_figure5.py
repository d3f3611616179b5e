"""QuaRL, Figure 5: mixed-precision training converges as fp32 does, on a pixel task that this machine can train."""

import pytest


@pytest.mark.claim("figure5-converges", "figure5-sooner")
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)
