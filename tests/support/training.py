"""Trainings of seconds."""

import json
from pathlib import Path
from typing import Any

import pytest

from quarl_bench.policies.storage.fp32 import StoredPolicy
from quarl_bench.spec import PolicySpec
from quarl_bench.system.interruption import Interrupted
from quarl_bench.training.recipes import Recipe
from quarl_bench.training.sb3 import checkpoints
from quarl_bench.training.sb3 import run as rl_run
from quarl_bench.training.sb3.run import TrainingOptions
from quarl_bench.training.schemes import finish_policy, train_policy

ON_POLICY = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "learning_rate": "lin_0.001"}


OFF_POLICY = {"buffer_size": 200, "learning_starts": 50, "train_freq": 16, "batch_size": 8}


def make_recipe(algo: str = "ppo", **changes: Any) -> Recipe:
    """512 steps, and smaller where the algorithm is slow."""
    hyperparameters = (ON_POLICY if algo == "ppo" else OFF_POLICY) | {"policy_kwargs": {"net_arch": [8]}}
    values = {"timesteps": 512, "environments": 2, "hyperparameters": hyperparameters} | changes
    return Recipe(algo, "pendulum" if algo == "ddpg" else "cartpole", "a test", **values)


class Run:
    """One training in a folder of its own."""

    def __init__(self, folder: Path, recipe: Recipe) -> None:
        self.folder, self.checkpoint, self.recipe = folder / "policy", folder / "unfinished", recipe
        self.spec = PolicySpec(recipe.algo, recipe.environment, 7)

    def start(self, *, recipe: Recipe | None = None, **options: Any) -> StoredPolicy:
        return train_policy(self.spec, recipe or self.recipe, self.folder, self.checkpoint, TrainingOptions(**options))

    def finish(self) -> StoredPolicy:
        return finish_policy(self.spec, self.recipe, self.folder, self.checkpoint)

    def interrupt(self, after: int, *, resume: bool = False) -> dict[str, Any]:
        """Ask to stop when a new rollout is to begin for the `after`-th time; the checkpoint's state."""
        asked = iter(range(1, 1000))
        with pytest.raises(Interrupted, match="--resume goes on"):
            self.start(resume=resume, should_stop=lambda: next(asked) >= after)
        return self.state()

    def state(self) -> dict[str, Any]:
        return json.loads((self.checkpoint / "state.json").read_text())


@pytest.fixture(autouse=True)
def few_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds instead of minutes."""
    monkeypatch.setattr(rl_run, "VALIDATION_EPISODES", 4)
    monkeypatch.setattr(rl_run, "SCORE_EPISODES", 6)
    monkeypatch.setattr(checkpoints, "CURVE_POINTS", 4)
