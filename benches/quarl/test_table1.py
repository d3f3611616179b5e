"""QuaRL, Table 1: quantization-aware training at 8 bits and below, and how many experiments there are."""

import pytest


@pytest.mark.claim("table1-trained")
def test_training_with_the_quantizer_keeps_the_return(
    case, policy, quantized_policy, evaluate, metrics_regression, verdict
):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))


@pytest.mark.claim("table1-count")
def test_experiments_are_many(claim, cells, verdict):
    verdict.check_cells(cells)
