"""Agents of rl-baselines3-zoo from the Hugging Face hub, in the folders that `--quarl-zoo` takes."""

from collections.abc import Iterable
from pathlib import Path

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import PolicyError
from quarl_bench.experiments.hub import save_agent
from quarl_bench.experiments.zoo_agents import find_zip
from quarl_bench.system.bars import collect

OWNER = "sb3"  # who pushed the zoo to the hub
Cell = tuple[str, str]  # algorithm and environment


def fetch_agents(cells: Iterable[Cell], root: Path) -> dict[str, Path]:
    """The zip of every cell's agent below `root`, by cell; what is there already is kept.

    Errors as `fetch_agent`, at the first agent that cannot be had; those before it stay.
    """
    wanted = list(dict.fromkeys(cells))
    found = ((f"{algo}-{slug}", fetch_agent(algo, slug, root)) for algo, slug in wanted)
    return dict(collect(found, len(wanted), "agent", lambda one: one[0]))


def fetch_agent(algo: str, slug: str, root: Path) -> Path:
    """The zip of one agent, `<algo>/<Environment>_1/<Environment>.zip` below `root`.

    The hub is asked for the environment's living id and its former ones, the newest first. PolicyError where it has
    none, does not answer, or gives what is no agent.
    """
    there = find_zip(root, algo, slug)
    if there is not None:
        return there
    environment = find_environment(slug)
    failure = PolicyError(f"{slug}: no id")
    for name in (environment.id, *sorted(environment.formerly, reverse=True)):
        try:
            return save_agent(f"hub:{OWNER}/{algo}-{name}", algo, name, root / algo / f"{name}_1")
        except PolicyError as error:
            failure = error
    raise failure
