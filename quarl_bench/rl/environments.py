"""The environments cases may name, and how to make one that steps without wrappers."""

import importlib.resources
import tomllib
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from quarl_bench.errors import MissingExtra, SpecError

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


def identify_environment(name: str) -> Environment:
    """The environment with this id part, or with this Gymnasium id; an id that is not listed has no known cap."""
    known = _read_environments()
    if name in known:
        return known[name]
    listed = {environment.id: environment for environment in known.values()}
    if name in listed:
        return listed[name]
    if name not in gymnasium.registry:
        raise SpecError(f"unknown environment {name!r}; known are {', '.join(sorted(known))} and Gymnasium's own ids")
    return Environment("".join(c for c in name.lower() if c.isalnum()), name)


def make_environment(environment: Environment) -> tuple[gymnasium.Env[Any, Any], int]:
    """An environment without bookkeeping wrappers, and the step limit that its TimeLimit would have enforced."""
    try:
        with warnings.catch_warnings():
            # Importing Box2D's wrapper warns from C code, which crashes the interpreter where warnings are errors.
            warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
            wrapped = gymnasium.make(environment.id, disable_env_checker=True)
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtra(environment.extra, f"environment {environment.slug!r}") from error
    spec = wrapped.spec
    if spec is None or spec.max_episode_steps is None:
        raise SpecError(f"environment {environment.id} has no step limit; register it with max_episode_steps")
    bare: gymnasium.Env[Any, Any] = wrapped
    while isinstance(bare, BOOKKEEPING):
        bare = bare.env
    return bare, spec.max_episode_steps


@cache
def _read_environments() -> dict[str, Environment]:
    text = importlib.resources.files(__package__).joinpath("environments.toml").read_text()
    return {slug: Environment(slug, **entry) for slug, entry in tomllib.loads(text).items()}
