"""From the name, id or class that a user means to an environment."""

from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium

from quarl_bench.environments.registry import Environment, find_environment, identify_environment
from quarl_bench.errors import SpecError
from quarl_bench.system.imports import SEPARATOR, import_attribute, instantiate

AnyEnvironment = gymnasium.Env[Any, Any]


def lookup_environment(name: str) -> Environment:
    """The environment of this name or id, `custom` where it is none of this package's own; nothing is imported."""
    known = identify_environment(name)
    return replace(known, custom=not _is_listed(known))


def resolve_environment(named: Any) -> Environment:
    """The environment that a user means; a module that is named is imported."""
    found = import_attribute(named) if isinstance(named, str) and SEPARATOR in named else named
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        return _register(found)
    if not isinstance(named, str):
        raise SpecError(f"{named!r} is no environment; pass a name, module:Class, or a class of Gymnasium")
    module, separator, name = named.rpartition(SEPARATOR)
    if separator:  # the import has registered it, if it is there
        if name not in gymnasium.registry:
            raise SpecError(f"environment {named!r}: {module} has no environment class, and registers no id, {name!r}")
        return replace(identify_environment(name), custom=True)
    return lookup_environment(named)


def _is_listed(environment: Environment) -> bool:
    try:
        return find_environment(environment.slug).id == environment.id
    except SpecError:
        return False


def _register(made: type[AnyEnvironment]) -> Environment:
    """A class of the user's own under its module's name and its own, in the place of an earlier class of that name."""
    name = f"{made.__module__}.{made.__name__}-v0"
    steps = getattr(made, "max_episode_steps", None)
    if steps is not None and (not isinstance(steps, int) or steps < 1):
        raise SpecError(f"environment {name}: max_episode_steps {steps!r}; give its class a whole number above 0")
    gymnasium.registry.pop(name, None)
    gymnasium.register(name, entry_point=partial(instantiate, made), max_episode_steps=steps)
    return replace(identify_environment(name), custom=True)
