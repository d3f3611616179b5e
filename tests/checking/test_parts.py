"""A policy that sees an image among vectors, from its zip to its verdict and the files to ship."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import PPO

from quarl_bench.backends.deployed import load_artefact
from quarl_bench.cli import main
from quarl_bench.environments.encoding import encode
from quarl_bench.policies.sources.sb3.zip import read_zip
from tests.support.lamps import Lamps
from tests.support.sizes import choose

ENVIRONMENT = "tests.support.lamps:Lamps"
STATES = choose(500, 10_000)  # that it is calibrated on
REFUSED = "an image among the observation's parts passes layers of its own, and has no form in it"


@pytest.fixture(scope="module")
def model() -> Any:
    """Learns in seconds which side is lit."""
    return PPO(
        "MultiInputPolicy", TimeLimit(Lamps(), 10), n_steps=256, batch_size=64, n_epochs=4, learning_rate=1e-3,
        gamma=0.0, device="cpu", seed=0,
        policy_kwargs={"net_arch": [16], "features_extractor_kwargs": {"cnn_output_dim": 16}},
    ).learn(512)  # fmt: skip


def test_an_episode_here_is_the_librarys(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "lamps.zip")
    policy, own, flat = read_zip(tmp_path / "lamps.zip").policy, Lamps(), encode(Lamps())
    (seen, _), (row, _), total = own.reset(seed=3), flat.reset(seed=3), 0.0
    for _ in range(50):
        action = model.predict(seen, deterministic=True)[0]
        assert policy.act(row[None])[0] == action
        (seen, reward, *_), (row, other, *_) = own.step(action), flat.step(action)
        assert reward == other
        total += reward
    assert total > 45  # by chance 25


@pytest.fixture
def folder(model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where lamps.zip is, and the cache."""
    monkeypatch.setattr("quarl_bench.evaluation.calibration.STATES", STATES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QUARL_CACHE_DIR", str(tmp_path / "cache"))
    model.save("lamps.zip")
    return tmp_path


@pytest.mark.needs("cc")
@pytest.mark.usefixtures("brief_costs")
def test_a_zip_is_checked_and_shipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "lamps.zip", "--environment", ENVIRONMENT, "--scheme", "int8", "--episodes", "30"]
    assert main([*command, "--margin", "0.2", "--export", "shipped", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "supported"
    deployed = load_artefact(folder / "shipped" / "int8-c")
    golden = deployed.artefact.golden
    np.testing.assert_array_equal(deployed.act(golden.observations), golden.actions)
    assert golden.inputs.shape[1:] == (36 * 36 * 3 + 2 + 2,)


@pytest.mark.usefixtures("folder")
def test_a_repair_is_refused_before_anything_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["check", "--repair", "made"], ["repair", "--scheme", "int8", "--output", "made"]):
        assert main([command[0], "lamps.zip", "--environment", ENVIRONMENT, *command[1:]]) == 2
        said = capsys.readouterr().err.strip()
        assert said.endswith(f"quarl repair: {REFUSED}")
