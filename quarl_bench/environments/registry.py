"""The environments cases may name, and how to make one that steps without wrappers."""

import contextlib
import difflib
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

from quarl_bench.environments.atari.games import FRAME_LIMIT, NOOPS, SKIP, GameSpaces
from quarl_bench.environments.bullet import FastBullet
from quarl_bench.environments.encoding import encode
from quarl_bench.environments.flights import Flight
from quarl_bench.environments.locomotion import Walker, find_walker
from quarl_bench.environments.wrappers import (
    LONGEST,
    STDERR,
    STDOUT,
    TimeFeature,
    Unlimited,
    silence,
)
from quarl_bench.errors import SpecError
from quarl_bench.system.extras import check_versions, describe_absence

# Extras whose environments need more than a name.
ATARI, BULLET, DMC, MUJOCO, NAVIGATION = "atari", "bullet", "dmc", "mujoco", "navigation"
LIBRARIES = {
    BULLET: ("pybullet_envs_gymnasium",),
    DMC: ("dm_control", "shimmy"),
    MUJOCO: ("mujoco",),
    NAVIGATION: ("PyFlyt.gym_envs",),
}
NAVIGATION_OPTIONS: dict[str, Any] = {"num_targets": 1, "goal_reach_distance": 0.5}  # metres, in a dome of 5
DROPPED_WRAPPERS = (TimeLimit, OrderEnforcing, PassiveEnvChecker)  # wrappers that the evaluation loop does without
RESETTABLE = (DMC, MUJOCO, NAVIGATION)  # nothing of an episode is left behind a reset; AntBullet, for one, remembers
# More fall out of the cache; one of Bullet takes 32 MB.
SIDE_BY_SIDE = {ATARI: 32, BULLET: 4, DMC: 32, MUJOCO: 32, NAVIGATION: 16}
NAME_SIMILARITY = 0.7  # how alike a name must be to be proposed
Made = tuple[gymnasium.Env[Any, Any], int]


@dataclass(frozen=True)
class Environment:
    """A task: its id part, its Gymnasium id, and its highest possible return, if any.

    `limit` is the number of steps after which an episode ends, where the id is registered without one. With
    `time_feature` the remaining time is appended to every observation. `patience` is the number of steps after which an
    Atari game ends in which nothing was scored and no life was lost; None plays it out.
    """

    slug: str
    id: str
    cap: float | None = None
    extra: str = ""
    formerly: tuple[str, ...] = ()
    limit: int | None = None
    time_feature: bool = False
    patience: int | None = None
    custom: bool = False  # a user's, whose code may change between two runs

    @property
    def atari(self) -> bool:
        """Whether this is an Atari game, seen through stable-baselines3's preprocessing."""
        return self.extra == ATARI

    @property
    def starts(self) -> int | None:
        """How many different episodes a policy without chance can play; None where there is no end to them."""
        return NOOPS if self.atari else None

    @property
    def walker(self) -> Walker | None:
        """Whose bodies take turns in one simulator; None where every episode has one of its own."""
        return None if self.time_feature else find_walker(self.id)

    @property
    def side_by_side(self) -> int | None:
        """How many episodes are played at once, where their simulators limit that."""
        return None if self.walker is not None else SIDE_BY_SIDE.get(self.extra)


def find_environment(slug: str) -> Environment:
    """The environment called `slug`; SpecError with near and known ones when there is none."""
    known = _read_environments()
    if slug not in known:
        raise _name_others(slug)
    return known[slug]


def list_environments() -> tuple[Environment, ...]:
    """Every environment that has a short name."""
    return tuple(_read_environments().values())


def identify_environment(name: str, *, time_feature: bool = False) -> Environment:
    """The environment with this id part, with this Gymnasium id, living or former, or, of DeepMind Control, this task.

    An id that is not listed has no known cap. Nothing is imported: names may come from strangers' files.
    """
    known = _read_environments()
    # Of several names for one id the first is meant.
    listed = {key: entry for entry in reversed(known.values()) for key in _list_names(entry)}
    environment = known.get(name) or listed.get(name)
    if environment is None and name in gymnasium.registry:
        environment = Environment(_shorten(name), name)
    if environment is None:
        raise _name_others(name, " and Gymnasium's own ids")
    return replace(environment, time_feature=time_feature)


def make_environment(environment: Environment, *, shaped: bool = False, render_mode: str | None = None) -> Made:
    """An environment without bookkeeping wrappers, and the step limit that its TimeLimit would have enforced.

    Its spaces are those of a policy (`encoding`). Of an Atari game there are only the spaces:
    `evaluation/batches/games.py` plays it without Gymnasium. `shaped`: rewarded as it is learned, where that is not
    how it is scored. `render_mode` is Gymnasium's.
    """
    bare, limit = _make_game(environment) if environment.atari else _make_bare(environment, render_mode)
    if environment.extra == BULLET:
        bare = FastBullet(bare)
    if environment.extra == NAVIGATION:
        bare = Flight(bare, shaped=shaped)
    _check_spaces(bare, environment)
    bare = encode(bare)
    if environment.time_feature:
        bare = TimeFeature(bare, limit)
    return bare, limit


class EnvironmentPool:
    """Environments that wait for their next episode: making one takes as long as a hundred steps, or a thousand.

    Only those are kept that a reset makes as good as new, and only of the task that was played last.
    """

    def __init__(self) -> None:
        self._idle: dict[Environment, list[Made]] = {}

    def borrow(self, environment: Environment, count: int) -> list[Made]:
        """`count` environments and their step limits, made if need be."""
        for other in self._idle.keys() - {environment}:
            close_environments(self._idle.pop(other))
        idle = self._idle.get(environment, [])
        return [idle.pop() if idle else make_environment(environment) for _ in range(count)]

    def give_back(self, environment: Environment, made: list[Made]) -> None:
        """Keep environments for the next borrower, or close them; whatever they were doing is over."""
        if environment.extra in RESETTABLE:
            self._idle.setdefault(environment, []).extend(made)
        else:
            close_environments(made)


ENVIRONMENTS = EnvironmentPool()  # of this process
_check_versions = cache(check_versions)  # reading them takes as long as twenty steps


def close_environments(made: list[Made]) -> None:
    """Free what they hold."""
    for bare, _ in made:
        bare.close()


def _make_game(environment: Environment) -> Made:
    return GameSpaces(environment.id), FRAME_LIMIT // SKIP


def _make_bare(environment: Environment, render_mode: str | None) -> Made:
    what = f"environment {environment.slug!r}"
    try:
        if environment.extra:
            _check_versions(environment.extra, what)
        with _quiet_making(environment):
            settings: dict[str, Any] = NAVIGATION_OPTIONS if environment.extra == NAVIGATION else {}
            if render_mode is not None:
                settings = settings | {"render_mode": render_mode}
            bare: gymnasium.Env[Any, Any] = gymnasium.make(environment.id, disable_env_checker=True, **settings)
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        if not environment.extra:
            raise SpecError(f"environment {environment.id} cannot be made: {_first_line(error)}") from error
        raise describe_absence(environment.extra, what) from error
    except gymnasium.error.Error as error:
        raise SpecError(f"environment {environment.id} cannot be made: {_first_line(error)}") from error
    limit = environment.limit if bare.spec is None else bare.spec.max_episode_steps or environment.limit
    while isinstance(bare, DROPPED_WRAPPERS):
        bare = bare.env
    if limit is not None:
        return bare, limit
    if not environment.custom:
        remedy = "register it with max_episode_steps, or give its class an attribute of that name"
        raise SpecError(f"environment {environment.id} has no step limit; {remedy}")
    return Unlimited(bare), LONGEST + 1


def _check_spaces(made: gymnasium.Env[Any, Any], environment: Environment) -> None:
    """SpecError where it does not say what is observed, or what acts."""
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(made, name, None), gymnasium.Space):
            raise SpecError(f"environment {environment.id}: it has no {name}; give it one of gymnasium.spaces")


@contextlib.contextmanager
def _quiet_making(environment: Environment) -> Iterator[None]:
    """Without the warnings that come with an environment whatever one does."""
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        # Importing Box2D's wrapper warns from C code, which crashes the interpreter where warnings are errors.
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # v4 is meant
        if environment.extra in (BULLET, NAVIGATION):
            stack.enter_context(silence(STDOUT, STDERR))  # its library says when it was built
        for library in LIBRARIES.get(environment.extra, ()):
            importlib.import_module(library)  # registers its ids
        if environment.extra in (DMC, MUJOCO):
            stack.enter_context(_quiet_mujoco())
        yield


@contextlib.contextmanager
def _quiet_mujoco() -> Iterator[None]:
    """Without MuJoCo's notes on the models, which it may also append to a file in the working directory."""
    mujoco = importlib.import_module("mujoco")
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda _: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _list_names(environment: Environment) -> list[str]:
    """What others call it: its ids, and of DeepMind Control the task, as walker-walk."""
    task = [environment.id.rpartition("/")[2].rpartition("-")[0]] if environment.extra == DMC else []
    return [environment.id, *environment.formerly, *task]


def _name_others(name: str, further: str = "") -> SpecError:
    """The error for an unknown name: what may have been meant, and what there is."""
    known = sorted(_read_environments())
    short = _shorten(name)
    near = [short] if short in known else difflib.get_close_matches(short, known, cutoff=NAME_SIMILARITY)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}{further}"
    return SpecError(f"unknown environment {name!r}; {hint}")


def _shorten(name: str) -> str:
    """The name with lower-case letters and digits alone: `Hopper-v4` becomes hopperv4."""
    return "".join(c for c in name.lower() if c.isalnum())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


@cache
def _read_environments() -> dict[str, Environment]:
    text = importlib.resources.files(__package__).joinpath("environments.toml").read_text()
    entries = tomllib.loads(text).items()
    return {
        slug: Environment(slug, **entry | {"formerly": tuple(entry.get("formerly", ()))}) for slug, entry in entries
    }
