"""Files that other libraries saved act as the library itself did: libraries/record.py recorded both."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from quarl_bench.cli import main
from quarl_bench.experiments.policy_source import PolicySource, open_task
from quarl_bench.policies.sources.sb3.zip import read_zip
from tests.support.archives import unpack_sbx

DATA = Path(__file__).parent / "libraries" / "data"
OBSERVATIONS = (np.random.default_rng(0).standard_normal((10_000, 3)) * 3).astype(np.float32)


class Task(gymnasium.Env[Any, Any]):
    """Three numbers in, two out, with bounds that clip nothing: what networks give is compared."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
    action_space = gymnasium.spaces.Box(-100, 100, (2,))
    max_episode_steps = 5


CHECKPOINTS: dict[str, dict[str, Any]] = {
    "rsl_rl_5/model.pt": {"arch": "elu"},
    "rsl_rl_2/model.pt": {"arch": "elu"},
    "rl_games/model.pth": {"arch": "elu"},
    "skrl/agent.pt": {"arch": "elu"},
    "cleanrl/agent.pth": {"arch": "cleanrl-ppo-continuous", "normalization": "none"},
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_outputs_of_a_checkpoint_are_the_library_s_own(name: str) -> None:
    policy = open_task(PolicySource(DATA / name, Task, **CHECKPOINTS[name]))[0].policy
    assert (policy.transform.normalization is None) == name.startswith("cleanrl")
    expected = np.load((DATA / name).with_suffix(".npy"))
    np.testing.assert_allclose(policy.act(OBSERVATIONS), expected, rtol=0, atol=1e-5)


MEMORIES = [
    *("rsl_rl_5_lstm/model.pt", "rsl_rl_2_gru/model.pt", "rl_games_lstm/model.pth", "rl_games_gru/model.pth"),
    pytest.param("rsl_rl_5_lstm/policy.onnx", marks=pytest.mark.needs("onnx")),
]
STEPS, LENGTH = 100, 25  # as record.py plays them


@pytest.mark.parametrize("name", MEMORIES)
def test_a_policy_with_a_memory_acts_as_in_its_library(name: str) -> None:
    """A hundred episodes side by side, which begin anew at other times."""
    arch = None if name.endswith(".onnx") else "elu"
    policy = open_task(PolicySource(DATA / name, Task, arch=arch))[0].policy
    assert policy.transform.normalization is not None
    expected = np.load((DATA / name).with_suffix(".npy")).reshape(STEPS, -1, 2)
    state = policy.initial_state(expected.shape[1])
    for step, seen in enumerate(OBSERVATIONS.reshape(STEPS, -1, 3)):
        actions, state = policy.act(seen, state)
        np.testing.assert_allclose(actions, expected[step], rtol=0, atol=1e-5)
        for part in state:
            part[(step + np.arange(len(seen))) % LENGTH == LENGTH - 1] = 0


AGENTS = sorted(path.name.partition(".")[0] for path in (DATA / "sbx").glob("*.xz"))


@pytest.mark.parametrize("name", AGENTS)
def test_actions_of_a_zip_of_sbx_are_its_own(name: str, tmp_path: Path) -> None:
    agent = read_zip(unpack_sbx(name, tmp_path), normalization=None)
    assert agent.algo == name.removesuffix("_discrete")
    assert agent.store().metadata["origin"] == "SBX zip"
    expected = np.load(DATA / "sbx" / f"{name}.npy")
    np.testing.assert_allclose(agent.policy.act(OBSERVATIONS), expected, rtol=0, atol=1e-5)


NARROW = """
import gymnasium
import numpy as np


class Narrow(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    max_episode_steps = 5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.standard_normal(3).astype(np.float32), {}

    def step(self, action):
        seen = self.np_random.standard_normal(3).astype(np.float32)
        return seen, float(action) + 1.0, False, False, {}
"""


@pytest.mark.usefixtures("brief_costs")
def test_a_zip_of_sbx_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the file to the verdicts, saying what was assumed of it."""
    agent = unpack_sbx("ppo_discrete", tmp_path)
    (tmp_path / "narrow.py").write_text(NARROW)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    code = main(["check", str(agent), "--environment", "narrow:Narrow", "--episodes", "3", "--scheme", "fp16"])
    told = capsys.readouterr()
    assert code in (0, 1, 3), told.err
    assert "assumed to be ppo of SBX, with observations as they are" in told.err
    assert "fp16" in told.out
