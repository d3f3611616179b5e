"""QuaRL, Table 2: post-training quantization to 16 and 8 bits keeps the return (section 4)."""

import pytest


@pytest.mark.claim("table2-cell", "memory-cell")
def test_quantization_keeps_the_return(case, policy, quantized_policy, evaluate, metrics_regression, verdict):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy), policies=policy)


@pytest.mark.claim("table2-deployed")
def test_deployment_keeps_the_return(case, policy, deployed_policy, evaluate, metrics_regression, verdict):
    measured = evaluate(deployed_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))


@pytest.mark.claim("table2-mean", "table2-gains")
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)


@pytest.mark.claim("table2-fp16-like-8bit")
def test_16_bits_are_like_8(claim, cells, verdict):
    verdict.check_cells(cells)
