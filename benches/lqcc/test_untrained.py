"""LQCC, section 1: small nets that were not trained with the quantizer, quantized to the selected bits."""

import pytest


@pytest.mark.claim(
    "lqcc-untrained-humanoid",
    "lqcc-untrained-walker2d",
    "lqcc-untrained-ant",
    "lqcc-untrained-halfcheetah",
    "lqcc-untrained-hopper",
)
def test_without_training_the_return_is_lost(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim(
    "lqcc-trained-humanoid",
    "lqcc-trained-walker2d",
    "lqcc-trained-ant",
    "lqcc-trained-halfcheetah",
    "lqcc-trained-hopper",
)
def test_trained_with_the_quantizer_it_returns_more(claim, cells, verdict):
    verdict.check_cells(cells)
