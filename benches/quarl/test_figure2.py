"""QuaRL, Figure 2 (ICLR): quantization-aware training from 8 bits down to 2, against post-training quantization."""

import pytest


@pytest.mark.claim("classic-trained")
def test_training_with_the_quantizer_keeps_the_return(
    case, policy, quantized_policy, evaluate, metrics_regression, verdict
):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))


@pytest.mark.claim(
    "figure2-holds",
    "figure2-holds-dqn",
    "figure2-gains",
    "figure2-drops",
    "figure2-beats-ptq",
    "figure2-beats-weights",
    "figure2-beats-dqn",
    "figure2-varies",
)
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)
