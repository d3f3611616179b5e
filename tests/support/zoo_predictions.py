"""How far zoo agents, read without unpickling, are from stable-baselines3's `predict`: a process of its own, because
old files need `gym`, for which Gymnasium stands in here, and because it does unpickle them. Prints JSON.
"""

import importlib
import json
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import stable_baselines3 as sb3

from quarl_bench.policies.sources.sb3.zip import read_zip

COUNT = 2000
SUBMODULES = ("", ".spaces", ".spaces.box", ".spaces.discrete", ".utils", ".utils.seeding")
NOT_LOADED: dict[str, Any] = {  # bytecode of Python 3.7
    "lr_schedule": float,
    "clip_range": float,
    "exploration_schedule": float,
    "learning_rate": 0.0,
    "buffer_size": 10,
}


def compare(path: Path) -> float:
    """The largest difference of an action, on observations of a normal distribution."""
    agent = read_zip(path)
    model = getattr(sb3, agent.algo.upper()).load(path, device="cpu", custom_objects=NOT_LOADED)
    observations = np.random.default_rng(0).normal(0, 1.5, (COUNT, *agent.policy.transform.shape)).astype(np.float32)
    seen, statistics = observations, path.with_suffix("") / "vecnormalize.pkl"
    if statistics.exists():
        seen = pickle.loads(statistics.read_bytes()).normalize_obs(observations)
    expected, _ = model.predict(seen, deterministic=True)
    return float(np.abs(expected.astype(float) - agent.policy.act(observations)).max())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in SUBMODULES:
        sys.modules[f"gym{name}"] = importlib.import_module(f"gymnasium{name}")
    sys.stdout.write(json.dumps({path: compare(Path(path)) for path in sys.argv[1:]}))
