"""Scores the policies that a run kept, behind its end: nothing of this is in the timed loop."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from quarl_bench.actorq.acting.task import ActorTask
from quarl_bench.actorq.learning.learner import CURVE
from quarl_bench.actorq.message import quantize
from quarl_bench.actorq.settings import RunSettings
from quarl_bench.evaluation.episode_bars import show_episodes
from quarl_bench.evaluation.protocol import TEST_SEEDS, list_test_seeds, list_validation_seeds
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.policy import Policy
from quarl_bench.policies.storage.fp32 import load_policy, save_policy
from quarl_bench.system.bars import open_bar

VALIDATION_EPISODES = 20
TEST_EPISODES = 100
POLICY = "policy"  # the folder of the policy that is published


def score_run(
    settings: RunSettings, task: ActorTask, folder: Path, curve: list[dict[str, Any]],
    *, validation: int = VALIDATION_EPISODES, test: int = TEST_EPISODES, progress: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The curve with mean returns of the learner's policy, and the returns of the best one.

    The best on validation seeds, the later one of equals, becomes `folder`/policy; it is scored on test seeds, as the
    learner holds it and, of int8 runs, as its actors ran it.
    """
    seeds = list_validation_seeds(validation)
    points = []
    with open_bar(len(curve), "policy", f"evaluating {settings.name}", shown=progress) as bar:
        for point in curve:
            policy = load_policy(folder / CURVE / point["name"]).policy
            returns = roll_out(policy, task.environment, seeds).returns
            points.append(
                point | {"mean": float(returns.mean()), "sd": float(returns.std(ddof=1)) if len(seeds) > 1 else 0.0}
            )
            bar.update()
    best = max(reversed(points), key=lambda point: point["mean"])
    policy = load_policy(folder / CURVE / best["name"]).policy
    forms: dict[str, Policy] = {"fp32": policy}
    if settings.precision == "int8":
        states = np.load(folder / CURVE / f"{best['name']}.npy", allow_pickle=False)
        forms["int8"] = quantize(policy, states)
    scores = {name: _score(form, task, test, name, shown=progress) for name, form in forms.items()}
    score = {key: value for key, value in scores["fp32"].items() if key != "returns"}
    about = {
        "algo": settings.algo,
        "environment": task.environment.id,
        "seed": settings.seed,
        "time_feature": False,
        "origin": "trained by quarl_bench, ActorQ",
        "actorq": settings.as_dict(),
        "return": score,
    }
    save_policy(policy, folder / POLICY, about)
    return {"curve": points, "best": best, "scores": scores}


def discard_curve(folder: Path) -> None:
    """Remove the policies of the curve; their scores are in the record."""
    shutil.rmtree(folder / CURVE, ignore_errors=True)


def find_time(curve: list[dict[str, Any]], target: float, clock: str = "elapsed") -> float | None:
    """Seconds at which a policy first returned `target`, by the run's `clock`: elapsed or cpu; None if never."""
    return next((float(point[clock]) for point in curve if point["mean"] >= target), None)


def _score(policy: Policy, task: ActorTask, episodes: int, name: str, *, shown: bool) -> dict[str, Any]:
    seeds = list_test_seeds(episodes)
    with show_episodes(policy, task.environment, seeds, f"scoring {name}", shown=shown) as playing:
        returns = roll_out(playing, task.environment, seeds).returns
    return {
        "mean": float(returns.mean()),
        "sd": float(returns.std(ddof=1)) if episodes > 1 else 0.0,
        "episodes": episodes,
        "first_environment_seed": TEST_SEEDS,
        "deterministic": True,
        "returns": returns.tolist(),
    }
