"""LQCC, Figure 3: selected integer controllers against fp32 under noise on the normalized observation.

The area under the curve of returns is judged three times: in units of return, over the higher levels alone, and as a
share of each policy's own clean return.
"""

import pytest


@pytest.fixture
def curves(policy, quantized_policy, quarl_cells):
    from quarl_bench.papers.lqcc.noise_robustness import measure_noise

    return tuple(measure_noise(quarl_cells, policies) for policies in (policy, quantized_policy))


@pytest.mark.claim(
    "lqcc-noise-humanoid",
    "lqcc-noise-walker2d",
    "lqcc-noise-ant",
    "lqcc-noise-halfcheetah",
    "lqcc-noise-hopper",
)
def test_a_selected_net_withstands_noise(case, curves, verdict):
    from quarl_bench.papers.lqcc.figures import show_noise
    from quarl_bench.papers.lqcc.noise_robustness import compare_points

    fp32, quantized = curves
    panels = show_noise(case.case.environment, {"fp32": fp32, case.case.scheme: quantized})
    verdict.check(quantized.area, reference=fp32.area, panels=panels, caveats=compare_points(fp32, quantized))


@pytest.mark.claim(
    "lqcc-noise-humanoid-high",
    "lqcc-noise-walker2d-high",
    "lqcc-noise-ant-high",
    "lqcc-noise-halfcheetah-high",
    "lqcc-noise-hopper-high",
)
def test_a_selected_net_returns_more_under_much_noise(case, curves, verdict):
    fp32, quantized = curves
    verdict.check(quantized.noisy_area, reference=fp32.noisy_area)


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
