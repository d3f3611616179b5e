"""LQCC, Table 1: the selected integer controllers keep the return of fp32 ones that were trained alike."""

import pytest


@pytest.mark.claim(
    "lqcc-selected-humanoid",
    "lqcc-selected-walker2d",
    "lqcc-selected-ant",
    "lqcc-selected-halfcheetah",
    "lqcc-selected-hopper",
)
def test_a_selected_net_keeps_the_return(case, policy, quantized_policy, evaluate, metrics_regression, verdict):
    """Every task has a configuration, and so a claim, of its own."""
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))
