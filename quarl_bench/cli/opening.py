"""From a command's options to a policy, its environment, and its quantized form."""

import argparse
import gc
import importlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds to import; `--help` and usage errors do without
    from quarl_bench.environments.registry import Environment
    from quarl_bench.experiments.policy_source import PolicySource
    from quarl_bench.policies.policy import IntegerPolicy
    from quarl_bench.policies.storage.fp32 import StoredPolicy
    from quarl_bench.policies.storage.integers import StoredIntegers


def open_policy(options: argparse.Namespace) -> "StoredPolicy":
    """The policy of a command that does not play."""
    from quarl_bench.experiments.policy_source import open_stored

    return open_stored(_name(options))


def open_task(options: argparse.Namespace) -> "tuple[StoredPolicy, Environment]":
    """The policy and the environment it plays in: the one named, else its own; they have to fit."""
    from quarl_bench.experiments import policy_source as task

    return task.open_task(_name(options))


def open_integers(options: argparse.Namespace) -> "tuple[StoredIntegers, str] | None":
    """The integers that the folder holds, and their scheme; None where it holds none.

    Such are what `quarl train --scheme` and `quarl quantize --scheme int<bits>` wrote.
    """
    from quarl_bench.errors import SpecError
    from quarl_bench.experiments.policy_source import check_alone, find_baseline
    from quarl_bench.policies.storage.fp32 import INTEGERS
    from quarl_bench.policies.storage.integers import load_integers

    folder = find_baseline(options.policy)
    if not (folder / INTEGERS).exists():
        return None
    check_alone(options.algo, options.normalization, options.arch, folder)
    kept = load_integers(folder)
    parts = [kept.metadata.get(part) for part in ("recipe", "quantization")]
    scheme = next((part["scheme"] for part in parts if isinstance(part, dict) and "scheme" in part), None)
    if not isinstance(scheme, str):
        raise SpecError(f"{folder}: its manifest names no scheme; pass the policy that it was quantized from")
    return kept, scheme


def refuse_other_scheme(options: argparse.Namespace, own: str) -> None:
    """SpecError where --scheme asks a folder of integers for others than its own."""
    from quarl_bench.errors import SpecError
    from quarl_bench.quantization.scheme import Scheme

    if options.scheme and Scheme.parse(options.scheme).name != own:
        raise SpecError(f"{options.policy}: holds integers of {own}, which are not quantized again; no --scheme")


def find_integers(options: argparse.Namespace) -> "tuple[StoredIntegers, str, Environment] | None":
    """What `open_integers` gives, and where they play."""
    from quarl_bench.errors import PolicyError, SpecError
    from quarl_bench.experiments.environment_source import lookup_environment, resolve_environment
    from quarl_bench.experiments.zoo_agents import check_fit

    found = open_integers(options)
    if found is None:
        return None
    kept, scheme = found
    name = options.environment or kept.metadata.get("environment")
    if not isinstance(name, str):
        raise SpecError(f"{options.policy}: the policy names no environment; pass --environment")
    name = name if options.environment else lookup_environment(name).id
    environment = resolve_environment(name, options.env_kwargs)
    environment = replace(environment, time_feature=bool(kept.metadata.get("time_feature", False)))
    try:
        check_fit(kept.policy, environment)
    except PolicyError as error:
        raise PolicyError(f"{options.policy}: {error}") from error
    return kept, scheme, environment


def quantize_to_integers(options: argparse.Namespace, why: str) -> "tuple[IntegerPolicy, str, str, Environment]":
    """The policy under --scheme as integers, their scheme, the policy's hash, its environment; `why` no other does."""
    from quarl_bench.errors import SpecError
    from quarl_bench.evaluation.episode_bars import quantize_with_bar
    from quarl_bench.policies.policy import require_integer
    from quarl_bench.quantization.scheme import Scheme

    scheme = Scheme.parse(options.scheme or "int8")
    if not scheme.integer:
        raise SpecError(f"--scheme {scheme.name}: {why}; use int<bits>, 2 to 8")
    stored, environment = open_task(options)
    policy = require_integer(quantize_with_bar(stored.policy, scheme, environment))
    return policy, scheme.name, stored.sha256, environment


def name_task(environment: str) -> str:
    """The short name of an environment that is trained on: itself, or another name of it, as CartPole-v1."""
    from quarl_bench.environments.registry import identify_environment

    return identify_environment(environment).slug


def use_one_thread(*modules: str) -> None:
    """Nets are small: threads mostly wait, and cores are for processes. Called before other imports.

    Torch, and what else of `modules` a command needs, stays to the end: to look through it for garbage, while it is
    imported and ever after, would take longer than most of what commands do.
    """
    if "torch" not in sys.modules:
        gc.disable()
        for module in ("torch", *modules):
            importlib.import_module(module)
        gc.freeze()
        gc.enable()
    import torch

    torch.set_num_threads(1)


def _name(options: argparse.Namespace) -> "PolicySource":
    from quarl_bench.experiments.policy_source import PolicySource

    environment = getattr(options, "environment", None)  # of commands that play
    kwargs = getattr(options, "env_kwargs", None)
    return PolicySource(
        options.policy, environment, options.algo, options.normalization, options.arch, env_kwargs=kwargs
    )
