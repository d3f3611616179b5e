"""A policy with a memory, trained for seconds: what is published, and how a run goes on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from quarl_bench.environments.registry import find_environment
from quarl_bench.evaluation.calibration import quantize_calibrated
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.storage.fp32 import load_policy
from quarl_bench.quantization.scheme import Scheme
from tests.support.training import ON_POLICY, Run, few_episodes, make_recipe  # noqa: F401 (a fixture)

pytest.importorskip("sb3_contrib", reason="needs the extra contrib")
SIZES = {"policy_kwargs": {"net_arch": [8], "lstm_hidden_size": 6}}
RECIPE = replace(
    make_recipe("recurrentppo", hyperparameters=ON_POLICY | SIZES, policy="MlpLstmPolicy", normalize=True),
    environment="cartpolenovel",
)


def test_its_memory_is_published_played_and_quantized(tmp_path: Path) -> None:
    run = Run(tmp_path, RECIPE)
    run.interrupt(after=4)
    stored = run.start(resume=True)
    policy, about = load_policy(run.folder).policy, stored.metadata
    assert policy.recurrent
    assert {"sb3-contrib", "stable-baselines3", "torch"} <= set(about["versions"])
    assert [point["timesteps"] for point in about["curve"]][-1] == 512
    assert not any("variance" in point for point in about["curve"])  # a state alone does not tell its probabilities
    environment = find_environment("cartpolenovel")
    returns = roll_out(policy, environment, range(4)).returns
    np.testing.assert_array_equal(returns, roll_out(stored.policy, environment, range(4)).returns)
    integers = quantize_calibrated(policy, Scheme.parse("int8"), environment)
    assert roll_out(integers, environment, range(4), reference=policy).agreement > 0.5
