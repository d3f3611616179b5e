"""QuaRL, Figure 2 (ICLR): quantization-aware training from 8 bits down to 2, against post-training quantization."""

import pytest


@pytest.mark.claim("classic-trained")
def test_training_with_the_quantizer_keeps_the_return(
    case, policy, quantized_policy, evaluate, metrics_regression, verdict
):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))


@pytest.mark.claim("figure2-holds", "figure2-holds-dqn")
def test_six_bits_hold_in_most_cells(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("figure2-gains")
def test_training_with_the_quantizer_returns_more_in_some_cells(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("figure2-drops")
def test_fewer_than_five_bits_lose(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("figure2-beats-ptq", "figure2-beats-weights", "figure2-beats-dqn")
def test_training_loses_less_than_quantizing_afterwards(claim, cells, verdict):
    verdict.check_cells(cells)
