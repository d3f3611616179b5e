"""LQCC, Table 1: the selected integer controllers keep the return of fp32 ones that were trained alike."""

import pytest


def check(case_policies, evaluate, metrics_regression, verdict):
    """Every task has a configuration, and so a claim, of its own."""
    policy, quantized = case_policies
    measured = evaluate(quantized)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy))


@pytest.fixture
def case_policies(policy, quantized_policy):
    return policy, quantized_policy


@pytest.mark.claim("lqcc-selected-humanoid")
def test_humanoid(case, case_policies, evaluate, metrics_regression, verdict):
    check(case_policies, evaluate, metrics_regression, verdict)


@pytest.mark.claim("lqcc-selected-walker2d")
def test_walker2d(case, case_policies, evaluate, metrics_regression, verdict):
    check(case_policies, evaluate, metrics_regression, verdict)


@pytest.mark.claim("lqcc-selected-ant")
def test_ant(case, case_policies, evaluate, metrics_regression, verdict):
    check(case_policies, evaluate, metrics_regression, verdict)


@pytest.mark.claim("lqcc-selected-halfcheetah")
def test_halfcheetah(case, case_policies, evaluate, metrics_regression, verdict):
    check(case_policies, evaluate, metrics_regression, verdict)


@pytest.mark.claim("lqcc-selected-hopper")
def test_hopper(case, case_policies, evaluate, metrics_regression, verdict):
    check(case_policies, evaluate, metrics_regression, verdict)
