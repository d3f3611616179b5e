"""A trained policy's folder, whichever form it has: fp32 weights, or the integers of a quantization-aware one."""

from pathlib import Path
from typing import Any

from quarl_bench.policies.policy import IntegerPolicy, PolicyNet
from quarl_bench.policies.storage.fp32 import INTEGERS, StoredPolicy, load_policy, save_policy
from quarl_bench.policies.storage.integers import StoredIntegers, load_integers, save_integers

Stored = StoredPolicy | StoredIntegers


def save_stored(policy: PolicyNet | IntegerPolicy, folder: Path, metadata: dict[str, Any]) -> Stored:
    """Write `policy` to `folder` in its form; `about` joins the manifest (JSON types only)."""
    if isinstance(policy, IntegerPolicy):
        return save_integers(policy, folder, metadata)
    return save_policy(policy, folder, metadata)


def load_stored(folder: Path) -> Stored:
    """Read a folder of `save_stored`; PolicyError, naming the file and the remedy, for anything else."""
    return load_integers(folder) if (folder / INTEGERS).exists() else load_policy(folder)
