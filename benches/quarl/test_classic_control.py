"""QuaRL's sentences about errors and bits (section 4, abstract) on the classic control tasks."""

import pytest


@pytest.mark.claim("classic-mean")
def test_mean_error_is_within_5_percent(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("classic-fp16-like-8bit")
def test_16_bits_are_like_8(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("classic-gains")
def test_quantization_returns_more_in_some_cells(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("bits-suffice")
def test_bits_suffice_in_most_cells(claim, cells, verdict):
    verdict.check_cells(cells)
