"""From a command's options to a policy, its environment, and its quantized form."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # torch takes seconds to import; `--help` and usage errors do without
    from quarl_bench.policy.files import StoredPolicy
    from quarl_bench.policy.integers import StoredIntegers
    from quarl_bench.policy.policy import Policy
    from quarl_bench.quant.scheme import Scheme
    from quarl_bench.rl.environments import Environment
    from quarl_bench.task import Named


def open_policy(options: argparse.Namespace) -> "StoredPolicy":
    """The policy of a command that does not play."""
    from quarl_bench.task import open_stored

    return open_stored(_name(options))


def open_task(options: argparse.Namespace) -> "tuple[StoredPolicy, Environment]":
    """The policy and the environment it plays in: the one named, else its own; they have to fit."""
    from quarl_bench import task

    return task.open_task(_name(options))


def open_integers(options: argparse.Namespace) -> "tuple[StoredIntegers, str] | None":
    """The integers that the folder holds, and their scheme; None where it holds none.

    Such are what `quarl train --scheme` and `quarl quantize --scheme int<bits>` wrote.
    """
    from quarl_bench.errors import SpecError
    from quarl_bench.policy.files import INTEGERS
    from quarl_bench.policy.integers import load_integers
    from quarl_bench.task import check_alone, find_baseline

    folder = find_baseline(options.policy)
    if not (folder / INTEGERS).exists():
        return None
    check_alone(options.algo, options.normalization, options.arch, folder)
    kept = load_integers(folder)
    parts = [kept.about.get(part) for part in ("recipe", "quantization")]
    scheme = next((part["scheme"] for part in parts if isinstance(part, dict) and "scheme" in part), None)
    if not isinstance(scheme, str):
        raise SpecError(f"{folder}: its manifest names no scheme; pass the policy that it was quantized from")
    return kept, scheme


def refuse_other_scheme(options: argparse.Namespace, own: str) -> None:
    """SpecError where --scheme asks a folder of integers for others than its own."""
    from quarl_bench.errors import SpecError
    from quarl_bench.quant.scheme import Scheme

    if options.scheme and Scheme.parse(options.scheme).name != own:
        raise SpecError(f"{options.policy}: holds integers of {own}, which are not quantized again; no --scheme")


def find_integers(options: argparse.Namespace) -> "tuple[StoredIntegers, str, Environment] | None":
    """What `open_integers` gives, and where they play."""
    from quarl_bench.errors import PolicyError, SpecError
    from quarl_bench.rl.zoo import check_fit
    from quarl_bench.task import identify, recognise

    found = open_integers(options)
    if found is None:
        return None
    kept, scheme = found
    name = options.environment or kept.about.get("environment")
    if not isinstance(name, str):
        raise SpecError(f"{options.policy}: the policy names no environment; pass --environment")
    environment = identify(name) if options.environment else recognise(name)
    environment = replace(environment, time_feature=bool(kept.about.get("time_feature", False)))
    try:
        check_fit(kept.policy, environment)
    except PolicyError as error:
        raise PolicyError(f"{options.policy}: {error}") from error
    return kept, scheme, environment


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


def _name(options: argparse.Namespace) -> "Named":
    from quarl_bench.task import Named

    environment = getattr(options, "environment", None)  # of commands that play
    return Named(options.policy, environment, options.algo, options.normalization, options.arch)
