"""A trained policy's folder, whichever form it has: fp32 weights, or the integers of a quantization-aware one."""

from pathlib import Path
from typing import Any

from quarl_bench.policy.files import INTEGERS, StoredPolicy, load_policy, save_policy
from quarl_bench.policy.integers import StoredIntegers, load_integers, save_integers
from quarl_bench.policy.policy import IntegerPolicy, PolicyNet

Stored = StoredPolicy | StoredIntegers


def save_stored(policy: PolicyNet | IntegerPolicy, folder: Path, about: dict[str, Any]) -> Stored:
    """Write `policy` to `folder` in its form; `about` joins the manifest (JSON types only)."""
    if isinstance(policy, IntegerPolicy):
        return save_integers(policy, folder, about)
    return save_policy(policy, folder, about)


def load_stored(folder: Path) -> Stored:
    """Read a folder of `save_stored`; PolicyError, naming the file and the remedy, for anything else."""
    return load_integers(folder) if (folder / INTEGERS).exists() else load_policy(folder)
