"""LQCC, section 1: small nets that were not trained with the quantizer, quantized to the selected bits."""

import pytest


@pytest.mark.claim(
    "lqcc-untrained-humanoid",
    "lqcc-untrained-walker2d",
    "lqcc-untrained-ant",
    "lqcc-untrained-halfcheetah",
    "lqcc-untrained-hopper",
)
def test_without_training_the_return_is_lost(claim, quarl_cells, verdict):
    from dataclasses import replace

    from quarl_bench.claims.verdict import judge_loss

    (case,) = claim.cases
    policies = quarl_cells.find_policies(replace(case, scheme="fp32"))
    arm = quarl_cells.quantize(policies, claim.scheme)
    verdict.check_result(judge_loss((quarl_cells.measure(policies), quarl_cells.measure(arm))))
