"""What `quarl repair` brings back (docs/repair.md): the forms below baselines/repaired, judged like all schemes."""

import pytest


@pytest.mark.claim("repaired-cell", "repaired-few", "repaired-three-bits", "rewritten-zoo")
def test_the_repaired_form_keeps_the_return(case, policy, quantized_policy, evaluate, metrics_regression, verdict):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy), policies=policy)


@pytest.mark.claim("repaired-mean", "exception-plain", "exception-repaired", "repaired-gains", "repaired-beats-trained")
def test_sentences_over_cells(claim, cells, verdict):
    verdict.check_cells(cells)
