"""From what a user names to a policy, its environment, and its quantized form."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from quarl_bench.errors import PolicyError, SpecError

if TYPE_CHECKING:  # torch takes seconds to import; `--help` and usage errors do without
    from quarl_bench.policy.files import StoredPolicy
    from quarl_bench.policy.policy import Policy
    from quarl_bench.quant.scheme import Scheme
    from quarl_bench.rl.environments import Environment

HUB = "hub:"  # what the address of an agent on the Hugging Face hub begins with


def open_policy(options: argparse.Namespace) -> "StoredPolicy":
    """The policy in a folder of this package, in a .zip of stable-baselines3, or on the Hugging Face hub."""
    from quarl_bench.policy.files import load_policy
    from quarl_bench.policy.integers import INTEGERS

    path: Path = options.policy
    if str(path).startswith(HUB) or (path.suffix == ".zip" and not path.is_dir()):
        return _open_agent(path, options.algo, options.normalization)
    if (path / INTEGERS).exists():
        raise PolicyError(f"{path}: holds integers, which are not quantized again; pass the fp32 policy it came from")
    return load_policy(path)


def open_task(options: argparse.Namespace) -> "tuple[StoredPolicy, Environment]":
    """The policy and the environment it plays in: the one named, else its own; they have to fit."""
    from quarl_bench.policy.zip import ZooAgent
    from quarl_bench.rl.zoo import find_home

    stored = open_policy(options)
    name = options.environment or stored.about.get("environment")
    if not isinstance(name, str):
        raise SpecError(f"{options.policy}: the policy names no environment; pass --environment")
    algo, time_feature = str(stored.about.get("algo", "")), bool(stored.about.get("time_feature", False))
    try:
        return stored, find_home(ZooAgent(stored.policy, algo, name, time_feature, stored.sha256))
    except PolicyError as error:
        raise PolicyError(f"{options.policy}: {error}") from error


def quantize_policy(stored: "StoredPolicy", environment: "Environment", scheme: "Scheme") -> "Policy":
    """The policy under `scheme`, as integers for int<n>, calibrated as the papers' cases are."""
    from quarl_bench.cells import calibrate
    from quarl_bench.policy.policy import deployable

    observations = calibrate(stored.policy, environment) if scheme.integer and scheme.calibrated else None
    return deployable(stored.policy.quantize(scheme, observations))


def use_one_thread() -> None:
    """Nets are small: threads mostly wait, and cores are for processes."""
    import torch

    torch.set_num_threads(1)


def _open_agent(path: Path, algo: str | None, normalization: str | None) -> "StoredPolicy":
    from quarl_bench.policy.zip import FROM_FOLDER
    from quarl_bench.rl.hub import load_agent
    from quarl_bench.rl.zoo import read_agent

    statistics = {None: FROM_FOLDER, "none": None}.get(normalization, Path(normalization or ""))
    if str(path).startswith(HUB):
        return load_agent(str(path), algo, statistics)
    return read_agent(path, algo, statistics).store()
