"""Committed policies, and the states they visit: what one process of a run has played, the others read."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from quarl_bench.environments.registry import identify_environment
from quarl_bench.evaluation.calibration import collect_observations
from quarl_bench.policies.storage.fp32 import StoredPolicy, load_policy
from quarl_bench.policies.storage.integers import StoredIntegers, load_integers
from tests.support.places import POLICIES

Visit = Callable[[str, int, int], NDArray[Any]]  # a policy's name, how many states, the seed of the first episode


@cache
def load_any(name: str) -> StoredPolicy | StoredIntegers:
    folder = POLICIES / name
    return load_integers(folder) if (folder / "integers.safetensors").exists() else load_policy(folder)


def keep_visits(folder: Path) -> Visit:
    """`folder` is that of all processes of a run."""
    folder.mkdir(exist_ok=True)

    @cache
    def visit(name: str, count: int, first_seed: int) -> NDArray[Any]:
        file = folder / f"{name}-{count}-{first_seed}.npy"
        with FileLock(file.with_suffix(".lock")):
            if not file.exists():
                stored = load_any(name)
                about = stored.metadata
                home = identify_environment(about["environment"], time_feature=about.get("time_feature", False))
                scratch = file.with_suffix(".new.npy")
                np.save(scratch, collect_observations(stored.policy, home, count, first_seed))
                scratch.replace(file)
        return np.load(file)

    return visit
