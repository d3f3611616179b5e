"""QuaRL, Figure 5: mixed-precision training converges as fp32 does, on a pixel task that this machine can train."""

import pytest


@pytest.mark.claim("figure5-converges")
def test_mixed_precision_does_not_harm_convergence(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("figure5-sooner")
def test_the_middle_policy_converges_sooner(claim, cells, verdict):
    verdict.check_cells(cells)
