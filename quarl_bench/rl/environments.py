"""The environments cases may name, and how to make one that steps without wrappers."""

import importlib.resources
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from quarl_bench.errors import SpecError

BOOKKEEPING = (TimeLimit, OrderEnforcing, PassiveEnvChecker)  # wrappers that the evaluation loop does without


@dataclass(frozen=True)
class Environment:
    """A task: its id part, its Gymnasium id, and its highest possible return, if any."""

    slug: str
    id: str
    cap: float | None = None
    extra: str = ""


def find_environment(slug: str) -> Environment:
    """The environment called `slug`; SpecError with the known ones when there is none."""
    known = _read_environments()
    if slug not in known:
        raise SpecError(f"unknown environment {slug!r}; known are {', '.join(sorted(known))}")
    return known[slug]


def make_environment(environment: Environment) -> tuple[gymnasium.Env[Any, Any], int]:
    """An environment without bookkeeping wrappers, and the step limit that its TimeLimit would have enforced."""
    try:
        wrapped = gymnasium.make(environment.id, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        raise SpecError(missing_extra(environment)) from error
    spec = wrapped.spec
    if spec is None or spec.max_episode_steps is None:
        raise SpecError(f"environment {environment.id} has no step limit; register it with max_episode_steps")
    bare: gymnasium.Env[Any, Any] = wrapped
    while isinstance(bare, BOOKKEEPING):
        bare = bare.env
    return bare, spec.max_episode_steps


def missing_extra(environment: Environment) -> str:
    """What to install for an environment whose dependency is absent."""
    return f"environment {environment.slug!r} needs an extra: pip install 'quarl_bench[{environment.extra}]'"


@cache
def _read_environments() -> dict[str, Environment]:
    text = importlib.resources.files(__package__).joinpath("environments.toml").read_text()
    return {slug: Environment(slug, **entry) for slug, entry in tomllib.loads(text).items()}
