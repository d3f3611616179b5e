"""LQCC, Figure 3: selected integer controllers against fp32 under noise on the normalized observation.

The area under the curve of returns is judged twice: in units of return, and as a share of each policy's own clean one.
"""

import pytest


@pytest.fixture
def curves(policy, quantized_policy, quarl_cells):
    from quarl_bench.claims.robustness import measure_noise

    return tuple(measure_noise(quarl_cells, policies) for policies in (policy, quantized_policy))


def check(case, curves, verdict):
    from quarl_bench.claims.panels import show_noise
    from quarl_bench.claims.robustness import compare_points

    fp32, quantized = curves
    panels = show_noise(case.case.environment, {"fp32": fp32, case.case.scheme: quantized})
    verdict.check(quantized.area, reference=fp32.area, panels=panels, caveats=compare_points(fp32, quantized))


@pytest.mark.claim("lqcc-noise-hopper")
def test_hopper(case, curves, verdict):
    check(case, curves, verdict)


@pytest.mark.claim("lqcc-noise-hopper-own")
def test_hopper_against_itself(case, curves, verdict):
    fp32, quantized = curves
    verdict.check(quantized.relative_area, reference=fp32.relative_area)


@pytest.mark.claim("lqcc-noise-halfcheetah")
def test_halfcheetah(case, curves, verdict):
    check(case, curves, verdict)


@pytest.mark.claim("lqcc-noise-halfcheetah-own")
def test_halfcheetah_against_itself(case, curves, verdict):
    fp32, quantized = curves
    verdict.check(quantized.relative_area, reference=fp32.relative_area)


@pytest.mark.claim("lqcc-noise-walker2d")
def test_walker2d(case, curves, verdict):
    check(case, curves, verdict)


@pytest.mark.claim("lqcc-noise-walker2d-own")
def test_walker2d_against_itself(case, curves, verdict):
    fp32, quantized = curves
    verdict.check(quantized.relative_area, reference=fp32.relative_area)


@pytest.mark.claim("lqcc-noise-ant")
def test_ant(case, curves, verdict):
    check(case, curves, verdict)


@pytest.mark.claim("lqcc-noise-ant-own")
def test_ant_against_itself(case, curves, verdict):
    fp32, quantized = curves
    verdict.check(quantized.relative_area, reference=fp32.relative_area)


@pytest.mark.claim("lqcc-noise-humanoid")
def test_humanoid(case, curves, verdict):
    check(case, curves, verdict)


@pytest.mark.claim("lqcc-noise-humanoid-own")
def test_humanoid_against_itself(case, curves, verdict):
    fp32, quantized = curves
    verdict.check(quantized.relative_area, reference=fp32.relative_area)
