"""LQCC, section 1: small nets that were not trained with the quantizer, quantized to the selected bits."""

from dataclasses import replace

import pytest


@pytest.mark.claim(
    "lqcc-untrained-humanoid",
    "lqcc-untrained-walker2d",
    "lqcc-untrained-ant",
    "lqcc-untrained-halfcheetah",
    "lqcc-untrained-hopper",
)
def test_without_training_the_return_is_lost(claim, quarl_cells, verdict):
    from quarl_bench.judging.retention import judge_loss
    from quarl_bench.papers.lqcc.own_runs import Runs

    (case,) = claim.cases
    runs = Runs(quarl_cells)
    policies = runs.note(quarl_cells.find_policies(replace(case, scheme="fp32")))
    arm = runs.note(quarl_cells.quantize(policies, claim.scheme))
    verdict.check_result(judge_loss((quarl_cells.measure(policies), quarl_cells.measure(arm))), runs=runs)


@pytest.mark.claim(
    "lqcc-trained-humanoid",
    "lqcc-trained-walker2d",
    "lqcc-trained-ant",
    "lqcc-trained-halfcheetah",
    "lqcc-trained-hopper",
)
def test_trained_with_the_quantizer_it_returns_more(claim, quarl_cells, verdict):
    from quarl_bench.papers.lqcc.arms import judge_higher
    from quarl_bench.papers.lqcc.own_runs import Runs

    (case,) = claim.cases
    runs = Runs(quarl_cells)
    arms = [runs.find_arm(replace(case, scheme="fp32")), runs.find_arm(case), runs.find_untrained(case)]
    found, gaps = runs.find_pairs({case.environment: arms})
    missing = [f"{task}: fp32, trained, and quantized afterwards" for task in gaps]
    verdict.check_result(judge_higher(found, missing), runs=runs)
