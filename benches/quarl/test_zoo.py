"""QuaRL's Table 2 sentence on rl-baselines3-zoo agents (`--quarl-zoo=PATH`), with both roundings side by side."""

import pytest


@pytest.mark.claim("zoo-cell")
def test_quantization_keeps_the_return(case, policy, quantized_policy, evaluate, metrics_regression, verdict):
    measured = evaluate(quantized_policy)
    metrics_regression.check(measured)
    verdict.check(measured, reference=evaluate(policy), policies=policy)
