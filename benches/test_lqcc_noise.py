"""LQCC, Figure 3: selected integer controllers against fp32 under noise on the normalized observation.

The area under the curve of returns is judged twice: in units of return, and as a share of each policy's own clean one.
"""

import pytest


@pytest.fixture
def curves(policy, quantized_policy, quarl_cells):
    from quarl_bench.claims.robustness import measure_noise

    return tuple(measure_noise(quarl_cells, policies) for policies in (policy, quantized_policy))


@pytest.mark.claim(
    "lqcc-noise-humanoid",
    "lqcc-noise-walker2d",
    "lqcc-noise-ant",
    "lqcc-noise-halfcheetah",
    "lqcc-noise-hopper",
)
def test_a_selected_net_withstands_noise(case, curves, verdict):
    from quarl_bench.claims.panels import show_noise
    from quarl_bench.claims.robustness import compare_points

    fp32, quantized = curves
    panels = show_noise(case.case.environment, {"fp32": fp32, case.case.scheme: quantized})
    verdict.check(quantized.area, reference=fp32.area, panels=panels, caveats=compare_points(fp32, quantized))


@pytest.mark.claim(
    "lqcc-noise-humanoid-own",
    "lqcc-noise-walker2d-own",
    "lqcc-noise-ant-own",
    "lqcc-noise-halfcheetah-own",
    "lqcc-noise-hopper-own",
)
def test_a_selected_net_withstands_noise_by_its_own_measure(case, curves, verdict):
    from quarl_bench.errors import SpecError

    try:
        fp32, quantized = (curve.relative_area for curve in curves)
    except SpecError as error:
        pytest.skip(str(error))
    verdict.check(quantized, reference=fp32)
