"""QuaRL, Figure 1 (ICLR): quantization-aware training and layer normalization, and what they do to exploration."""

import pytest


@pytest.mark.claim(
    "exploration-fixed",
    "exploration-delay-fixed",
    "exploration-visited",
    "exploration-norm-fixed",
    "exploration-norm-visited",
    "exploration-order-fixed",
    "exploration-order-visited",
    "exploration-return",
)
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)
