"""From what a user means to an environment: a name, an id, a class, a function, or one that is there already."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import TimeLimit

from quarl_bench.environments.registry import Environment, find_environment, identify_environment
from quarl_bench.errors import SpecError
from quarl_bench.system.imports import SEPARATOR, import_attribute, instantiate

AnyEnvironment = gymnasium.Env[Any, Any]
# Wrappers that change nothing a policy sees, or that our own games have too (stable-baselines3's for Atari).
HARMLESS = {"Monitor", "RecordEpisodeStatistics", "RecordVideo"}
HARMLESS |= {"NoopResetEnv", "MaxAndSkipEnv", "EpisodicLifeEnv", "FireResetEnv"}
HARMLESS |= {"WarpFrame", "ClipRewardEnv", "AtariWrapper"}
# The same of stable-baselines3's vector environments; a VecNormalize belongs to the policy.
HARMLESS_VECTORS = {"VecNormalize", "VecMonitor", "VecCheckNan", "VecTransposeImage"}
WANTED = "pass a name, module:Class, a class of Gymnasium, a function that makes one, or one that is made"
OF_VECTORS = ("num_envs", "vectorization_mode", "max_episode_steps")  # what `gymnasium.make_vec` adds
UNIQUE = 1_000  # environments of one name in a process


def lookup_environment(name: str) -> Environment:
    """The environment of this name or id, `custom` where it is none of this package's own; nothing is imported."""
    known = identify_environment(name)
    return replace(known, custom=not _is_listed(known))


def resolve_environment(named: Any, options: Mapping[str, Any] | None = None) -> Environment:
    """The environment that a user means, made with the `options`; a module that is named is imported.

    One that is there already is not played itself: others are made like it, because episodes run side by side.
    SpecError for what is no environment, or cannot be made again.
    """
    options = dict(options or {})
    if isinstance(named, str) and SEPARATOR not in named:
        return _configure(lookup_environment(named), options)
    found = import_attribute(named) if isinstance(named, str) else named
    if found is None and isinstance(named, str):
        return _configure(_find_registered(named), options)
    found = _unwrap_vector(found)
    if isinstance(found, EnvSpec):
        return _resolve_spec(found)
    if isinstance(found, gymnasium.Env):
        if options:
            raise SpecError("env_kwargs go to whoever makes the environment, and this one is made; leave them out")
        return _resolve_made(found)
    if not callable(found):
        raise SpecError(f"{named!r} is no environment; {WANTED}")
    maker = partial(instantiate, found, **options)
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        return _register(f"{found.__module__}.{found.__name__}", maker, getattr(found, "max_episode_steps", None))
    made = _unwrap_vector(maker())
    if not isinstance(made, gymnasium.Env):
        raise SpecError(f"{named!r} made {type(made).__name__}, which is no environment; {WANTED}")
    limit = _find_limit(made)
    made.close()
    return _register(_name_maker(found), maker, limit, unique=True)


def find_normalizer(named: Any) -> Any:
    """The VecNormalize of stable-baselines3 that an environment is in, where it changes observations; else None."""
    while (inner := getattr(named, "venv", None)) is not None:
        if type(named).__name__ == "VecNormalize" and named.norm_obs:
            return named
        named = inner
    return None


def _is_listed(environment: Environment) -> bool:
    try:
        return find_environment(environment.slug).id == environment.id
    except SpecError:
        return False


def _find_registered(named: str) -> Environment:
    """An id that a module registers when it is imported, as `module:Id-v0`."""
    module, _, name = named.rpartition(SEPARATOR)
    if name not in gymnasium.registry:
        raise SpecError(f"environment {named!r}: {module} has no environment class, and registers no id, {name!r}")
    return replace(identify_environment(name), custom=True)


def _configure(known: Environment, options: dict[str, Any]) -> Environment:
    """A known environment that is made with options: another one, whose highest return nobody knows."""
    if not options:
        return known
    if known.atari:
        raise SpecError(f"environment {known.id}: games are played in stable-baselines3's preprocessing; no env_kwargs")
    spec = gymnasium.registry.get(known.id)
    limit = options.get("max_episode_steps") or (spec.max_episode_steps if spec else None) or known.limit
    plain = partial(gymnasium.make, known.id, disable_env_checker=True)
    maker = partial(instantiate, plain, known.id, **options)
    made = _register(_name_changed(known.id), maker, limit, unique=True)
    return replace(made, extra=known.extra)


def _unwrap_vector(found: Any) -> Any:
    """One environment, or what makes or describes one, of a vector of them; everything else as it is."""
    while (inner := getattr(found, "venv", None)) is not None:
        if type(found).__name__ not in HARMLESS_VECTORS:
            raise SpecError(f"{type(found).__name__} changes what the policy sees; pass the environment inside it")
        found = inner
    if isinstance(found, gymnasium.vector.VectorEnv):
        makers = getattr(found.unwrapped, "env_fns", None)
        return makers[0] if makers else _describe_one(found)
    if hasattr(found, "get_attr") and hasattr(found, "num_envs"):  # of stable-baselines3
        made = getattr(found, "envs", None)
        return made[0] if made else found.get_attr("spec", 0)[0]
    return found


def _describe_one(vector: gymnasium.vector.VectorEnv[Any, Any, Any]) -> EnvSpec:
    """The description of one environment of a vector that steps all of them at once."""
    if vector.spec is None:
        raise SpecError(f"{type(vector).__name__} says nothing about its environments; {WANTED}")
    spec = copy.copy(vector.spec)
    spec.kwargs = {name: value for name, value in spec.kwargs.items() if name not in OF_VECTORS}
    spec.max_episode_steps = vector.spec.kwargs.get("max_episode_steps", spec.max_episode_steps)
    return spec


def _resolve_made(made: AnyEnvironment) -> Environment:
    """Others like it: by its id where that says all, by its description, else as copies."""
    spec = made.spec
    wrappers = [one for one in spec.additional_wrappers if one.name not in HARMLESS] if spec else []
    if spec is not None and spec.entry_point is not None and all(one.kwargs is not None for one in wrappers):
        return _resolve_spec(spec)
    try:
        copy.deepcopy(made)
    except Exception as error:  # whatever the environment holds
        raise SpecError(
            f"{made}: it cannot be copied ({type(error).__name__}), and episodes play side by side; pass a function "
            "that makes one"
        ) from error
    inner = type(made.unwrapped)
    return _register(
        f"{inner.__module__}.{inner.__name__}", partial(copy.deepcopy, made), _find_limit(made), unique=True
    )


def _resolve_spec(spec: EnvSpec) -> Environment:
    """The environment that a description of Gymnasium makes, without wrappers that change nothing."""
    wrappers = tuple(one for one in spec.additional_wrappers if one.name not in HARMLESS)
    plain = gymnasium.registry.get(spec.id)
    if plain is not None and not wrappers and not list_changes(spec, plain):
        return lookup_environment(spec.id)
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    made = copy.copy(spec)
    made.kwargs, made.additional_wrappers, made.disable_env_checker = kwargs, wrappers, True
    known = _register(_name_changed(spec.id), partial(gymnasium.make, made), spec.max_episode_steps, unique=True)
    return known if plain is None else replace(known, extra=identify_environment(spec.id).extra)


def list_changes(spec: EnvSpec, plain: EnvSpec) -> list[str]:
    """In what a description differs from what its id alone makes, wrappers apart."""
    given = {"render_mode": spec.kwargs.get("render_mode")} | plain.kwargs
    changes = [f"{name}={value!r}" for name, value in spec.kwargs.items() if given.get(name) != value]
    if spec.max_episode_steps != plain.max_episode_steps:
        changes.append(f"max_episode_steps={spec.max_episode_steps}")
    return changes


def _find_limit(made: Any) -> int | None:
    """The step limit of an environment: that of a TimeLimit around it, else its class's own."""
    limits = []
    outer = made
    while isinstance(outer, gymnasium.Wrapper):
        if isinstance(outer, TimeLimit):
            limits.append(outer._max_episode_steps)  # noqa: SLF001 (Gymnasium has no other name for it)
        outer = outer.env
    return min(limits) if limits else getattr(made.unwrapped, "max_episode_steps", None)


def _name_changed(name: str) -> str:
    """What a known environment is called that is made otherwise than its id says."""
    return f"{name.replace('/', '.').replace('-v', '.v')}.own"


def _name_maker(maker: Callable[..., Any]) -> str:
    name = getattr(maker, "__qualname__", type(maker).__qualname__).rpartition(".")[2]
    return f"{getattr(maker, '__module__', 'made')}.{''.join(c for c in name if c.isalnum() or c == '_')}"


def _register(stem: str, maker: Callable[..., Any], steps: Any, *, unique: bool = False) -> Environment:
    """What `maker` makes, under a name of its own, in the place of an earlier class of that name.

    With `unique` no other environment of this process loses its name.
    """
    name = f"{stem}-v0"
    if unique:
        names = (f"{stem}{'' if number == 1 else number}-v0" for number in range(1, UNIQUE))
        name = next(name for name in names if name not in gymnasium.registry)
    if steps is not None and (not isinstance(steps, int) or steps < 1):
        raise SpecError(f"environment {name}: max_episode_steps {steps!r}; give its class a whole number above 0")

    def make(**more: Any) -> Any:
        """A function, because Gymnasium copies what it registers, and makers may hold what cannot be copied."""
        return maker(**more)

    gymnasium.registry.pop(name, None)
    gymnasium.register(name, entry_point=make, max_episode_steps=steps)
    return replace(identify_environment(name), custom=True)
