"""From what a user names to a policy, its environment, and its quantized form."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quarl_bench.errors import PolicyError, SpecError

if TYPE_CHECKING:  # torch takes seconds to import; `--help` and usage errors do without
    import torch

    from quarl_bench.policy.files import StoredPolicy
    from quarl_bench.policy.policy import Policy
    from quarl_bench.quant.scheme import Scheme
    from quarl_bench.rl.environments import Environment

BASELINES = Path("baselines/policies")  # of a checkout
HUB = "hub:"  # what the address of an agent on the Hugging Face hub begins with


def open_policy(options: argparse.Namespace) -> "StoredPolicy":
    """The policy in a folder of this package, in a .zip of stable-baselines3, or on the Hugging Face hub."""
    from quarl_bench.policy.files import load_policy
    from quarl_bench.policy.integers import INTEGERS

    path: Path = options.policy
    if is_foreign(options):
        raise SpecError(f"{path}: a network alone; commands with --environment take it, as check and evaluate do")
    if str(path).startswith(HUB) or (path.suffix == ".zip" and not path.is_dir()):
        return _open_agent(path, options.algo, options.normalization)
    if (path / INTEGERS).exists():
        raise PolicyError(f"{path}: holds integers, which are not quantized again; pass the fp32 policy it came from")
    return load_policy(_find_baseline(path))


def is_foreign(options: argparse.Namespace) -> bool:
    """Whether the policy is a network of another framework, which says nothing about its ends."""
    name = str(options.policy)
    return options.arch is not None or (":" in name and not name.startswith(HUB) and not options.policy.exists())


def open_task(options: argparse.Namespace) -> "tuple[StoredPolicy, Environment]":
    """The policy and the environment it plays in: the one named, else its own; they have to fit."""
    from quarl_bench.policy.zip import ZooAgent
    from quarl_bench.rl.zoo import find_home

    if is_foreign(options):
        return _adopt(options)
    stored = open_policy(options)
    own = _import_own(options.environment)
    name = (own.id if own else options.environment) or stored.about.get("environment")
    if not isinstance(name, str):
        raise SpecError(f"{options.policy}: the policy names no environment; pass --environment")
    algo, time_feature = str(stored.about.get("algo", "")), bool(stored.about.get("time_feature", False))
    try:
        home = find_home(ZooAgent(stored.policy, algo, name, time_feature, stored.sha256))
    except PolicyError as error:
        raise PolicyError(f"{options.policy}: {error}") from error
    return stored, replace(home, custom=own is not None)


def _import_own(name: str | None) -> "Environment | None":
    """The environment of the user's own that was typed as `module:Class`, if one was."""
    from quarl_bench.imports import SEPARATOR
    from quarl_bench.rl.environments import import_environment

    return import_environment(name) if name and SEPARATOR in name else None


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


def _find_baseline(path: Path) -> Path:
    """The folder at `path`, else the committed policy of that name: `ppo-cartpole-seed0`."""
    committed = BASELINES / path.name
    return committed if not path.exists() and len(path.parts) == 1 and committed.exists() else path


def _adopt(options: argparse.Namespace) -> "tuple[StoredPolicy, Environment]":
    """A torch module or a state dictionary, between the ends of the environment it is to play."""
    from quarl_bench.policy import foreign
    from quarl_bench.policy.archive import read_file
    from quarl_bench.policy.files import StoredPolicy, hash_policy
    from quarl_bench.policy.statistics import read_statistics
    from quarl_bench.policy.weights import LIMIT, read_weights
    from quarl_bench.rl.environments import identify_environment, make_environment

    where = str(options.policy)
    if options.environment is None:
        raise SpecError(f"{where}: a network alone says nothing about its task; pass --environment")
    if options.arch in foreign.NORMALIZED and options.normalization is None:
        raise SpecError(
            f"{where}: {options.arch} is trained on normalized observations, and the file has no statistics; pass "
            "--normalization FILE of a saved VecNormalize, or --normalization none if it was trained without"
        )
    environment = _import_own(options.environment) or identify_environment(options.environment)
    bare, _ = make_environment(environment)
    observations, actions = bare.observation_space, bare.action_space
    bare.close()
    raw = options.normalization in (None, "none")
    normalization = None if raw else read_statistics(Path(options.normalization))
    if options.arch is None:
        layers = foreign.read_chain(_import_module(where), tuple(observations.shape or ()), where)
    else:
        weights = read_weights(read_file(options.policy, LIMIT, follow=True), where)
        layers = foreign.read_architecture(options.arch, weights, where)
    policy = foreign.adopt(layers, observations, actions, normalization, where)
    about = {"algo": None, "environment": environment.id, "origin": "a network of another framework"}
    return StoredPolicy(policy, hash_policy(policy), about), environment


def _import_module(name: str) -> "torch.nn.Module":
    """The torch module that `module:attribute` names, or that calling it makes."""
    import torch

    from quarl_bench.imports import import_attribute

    found = import_attribute(name)
    if callable(found) and not isinstance(found, torch.nn.Module):
        found = found()
    if not isinstance(found, torch.nn.Module):
        raise SpecError(f"{name!r} is no torch module, and makes none when called; name one")
    return found


def _open_agent(path: Path, algo: str | None, normalization: str | None) -> "StoredPolicy":
    from quarl_bench.policy.zip import FROM_FOLDER
    from quarl_bench.rl.hub import load_agent
    from quarl_bench.rl.zoo import read_agent

    statistics = {None: FROM_FOLDER, "none": None}.get(normalization, Path(normalization or ""))
    if str(path).startswith(HUB):
        return load_agent(str(path), algo, statistics)
    return read_agent(path, algo, statistics).store()
