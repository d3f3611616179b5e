"""QuaRL's sentences about errors and bits (section 4, abstract) on the classic control tasks."""

import pytest


@pytest.mark.claim("classic-mean", "classic-gains", "bits-suffice", "activations-cost", "calibration-helps")
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("classic-fp16-like-8bit")
def test_16_bits_are_like_8(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("sweet-spot", "sweet-spot-fewest")
def test_returns_against_bits(claim, cells, verdict):
    verdict.check_cells(cells)
