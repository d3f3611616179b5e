"""The environments cases may name, and how to make one that steps without wrappers."""

import contextlib
import importlib
import importlib.resources
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import gymnasium
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from quarl_bench.errors import MissingExtra, SpecError
from quarl_bench.rl.wrappers import STDERR, STDOUT, QuietReset, TimeFeature, silence

ATARI = "atari"  # the extra whose games `rl/atari.py` plays
BULLET, MUJOCO = "bullet", "mujoco"  # extras whose libraries talk
BOOKKEEPING = (TimeLimit, OrderEnforcing, PassiveEnvChecker)  # wrappers that the evaluation loop does without


@dataclass(frozen=True)
class Environment:
    """A task: its id part, its Gymnasium id, and its highest possible return, if any.

    With `time_feature` the remaining time is appended to every observation.
    """

    slug: str
    id: str
    cap: float | None = None
    extra: str = ""
    formerly: tuple[str, ...] = ()
    time_feature: bool = False

    @property
    def atari(self) -> bool:
        """Whether this is an Atari game, seen through stable-baselines3's preprocessing."""
        return self.extra == ATARI


def find_environment(slug: str) -> Environment:
    """The environment called `slug`; SpecError with the known ones when there is none."""
    known = _read_environments()
    if slug not in known:
        raise SpecError(f"unknown environment {slug!r}; known are {', '.join(sorted(known))}")
    return known[slug]


def identify_environment(name: str, *, time_feature: bool = False) -> Environment:
    """The environment with this id part, or with this Gymnasium id, living or former.

    An id that is not listed has no known cap.
    """
    known = _read_environments()
    listed = {key: entry for entry in known.values() for key in (entry.id, *entry.formerly)}
    environment = known.get(name) or listed.get(name)
    if environment is None and name in gymnasium.registry:
        environment = Environment("".join(c for c in name.lower() if c.isalnum()), name)
    if environment is None:
        raise SpecError(f"unknown environment {name!r}; known are {', '.join(sorted(known))} and Gymnasium's own ids")
    return replace(environment, time_feature=time_feature)


def make_environment(environment: Environment) -> tuple[gymnasium.Env[Any, Any], int]:
    """An environment without bookkeeping wrappers, and the step limit that its TimeLimit would have enforced."""
    bullet = environment.extra == BULLET
    try:
        with _quiet_making(environment):
            if bullet:
                importlib.import_module("pybullet_envs_gymnasium")  # registers its ids
            wrapped = gymnasium.make(environment.id, disable_env_checker=True)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        if not environment.extra:
            raise SpecError(f"environment {environment.id} cannot be made: {_first_line(error)}") from error
        raise MissingExtra(environment.extra, f"environment {environment.slug!r}") from error
    except gymnasium.error.Error as error:
        raise SpecError(f"environment {environment.id} cannot be made: {_first_line(error)}") from error
    spec = wrapped.spec
    if spec is None or spec.max_episode_steps is None:
        raise SpecError(f"environment {environment.id} has no step limit; register it with max_episode_steps")
    bare: gymnasium.Env[Any, Any] = wrapped
    while isinstance(bare, BOOKKEEPING):
        bare = bare.env
    if bullet:
        bare = QuietReset(bare)
    if environment.time_feature:
        bare = TimeFeature(bare, spec.max_episode_steps)
    return bare, spec.max_episode_steps


@contextlib.contextmanager
def _quiet_making(environment: Environment) -> Iterator[None]:
    """Without the warnings that come with an environment whatever one does."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        # Importing Box2D's wrapper warns from C code, which crashes the interpreter where warnings are errors.
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # v4 is meant
        if environment.extra == BULLET:
            stack.enter_context(silence(STDOUT, STDERR))  # its library says when it was built
        if environment.extra == MUJOCO:
            stack.enter_context(_quiet_mujoco())
        yield


@contextlib.contextmanager
def _quiet_mujoco() -> Iterator[None]:
    """Without MuJoCo's notes on Gymnasium's models, which it also appends to a file in the working directory."""
    mujoco = importlib.import_module("mujoco")
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@cache
def _read_environments() -> dict[str, Environment]:
    text = importlib.resources.files(__package__).joinpath("environments.toml").read_text()
    entries = tomllib.loads(text).items()
    return {
        slug: Environment(slug, **entry | {"formerly": tuple(entry.get("formerly", ()))}) for slug, entry in entries
    }
