"""LQCC, section 1: small nets that were not trained with the quantizer, quantized to the selected bits."""

import pytest


def check(claim, quarl_cells, verdict):
    from dataclasses import replace

    from quarl_bench.claims.untrained import quantize_untrained
    from quarl_bench.claims.verdict import judge_loss

    (case,) = claim.cases
    policies = quarl_cells.find_policies(replace(case, scheme="fp32"))
    arm = quantize_untrained(policies, claim.scheme)
    verdict.check_result(judge_loss((quarl_cells.measure(policies), quarl_cells.measure(arm))))


@pytest.mark.claim("lqcc-untrained-humanoid")
def test_humanoid_loses_return_without_training(claim, quarl_cells, verdict):
    check(claim, quarl_cells, verdict)


@pytest.mark.claim("lqcc-untrained-walker2d")
def test_walker2d_loses_return_without_training(claim, quarl_cells, verdict):
    check(claim, quarl_cells, verdict)


@pytest.mark.claim("lqcc-untrained-ant")
def test_ant_loses_return_without_training(claim, quarl_cells, verdict):
    check(claim, quarl_cells, verdict)


@pytest.mark.claim("lqcc-untrained-halfcheetah")
def test_halfcheetah_loses_return_without_training(claim, quarl_cells, verdict):
    check(claim, quarl_cells, verdict)


@pytest.mark.claim("lqcc-untrained-hopper")
def test_hopper_loses_return_without_training(claim, quarl_cells, verdict):
    check(claim, quarl_cells, verdict)
