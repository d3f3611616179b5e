"""QuaRL, Figure 1 (ICLR): quantization-aware training and layer normalization, and what they do to exploration."""

import pytest


@pytest.mark.claim("exploration-fixed")
def test_training_with_the_quantizer_flattens_fixed_states(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("exploration-visited")
def test_training_with_the_quantizer_flattens_visited_states(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("exploration-norm-fixed")
def test_layer_normalization_flattens_fixed_states(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("exploration-norm-visited")
def test_layer_normalization_flattens_visited_states(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("exploration-order-fixed")
def test_fewer_bits_are_flatter_in_fixed_states(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("exploration-order-visited")
def test_fewer_bits_are_flatter_in_visited_states(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("exploration-return")
def test_the_return_is_that_of_full_precision(claim, cells, verdict):
    verdict.check_cells(cells)
