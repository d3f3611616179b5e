"""Batches of episodes that start from given seeds and end for good: no autoreset, no wrapper in the loop.

Both kinds play exactly the episodes of `gymnasium.make(id)` with `reset(seed=seed)`: the vectorised kind takes its
starts from a scalar environment, and its dynamics are step-equal, so that an episode does not depend on how many
others run beside it.
"""

import contextlib
import hashlib
import traceback
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.atari.games import count_noops
from quarl_bench.environments.classic_control import DYNAMICS, Bools, Rewards, State
from quarl_bench.environments.registry import (
    DMC,
    ENVIRONMENTS,
    MUJOCO,
    Environment,
    Made,
    close_environments,
    make_environment,
)
from quarl_bench.environments.stopwatch import stop_watch
from quarl_bench.errors import QuarlError, SpecError, first_line
from quarl_bench.evaluation.batches.games import GameEpisodes
from quarl_bench.evaluation.batches.masks import MaskReader, draw_allowed
from quarl_bench.evaluation.batches.walks import WalkEpisodes
from quarl_bench.policies.masks import read_masks
from quarl_bench.spec import name_seeds

COMPARED_STARTS = 16  # episodes of equal starts that are compared
ANSWERS = {"reset": 2, "step": 5}  # how many things Gymnasium says that each returns
PROBE_STEPS = 1000
PROBE_SEED = 40_000  # of the actions with which they are compared


class Episodes(Protocol):
    """One episode per seed, played side by side."""

    def reset(self) -> NDArray[Any]:
        """Start an episode per seed, and return the first observations (seeds, ...)."""

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        """Step the episodes `active` (n,); their observations (n, ...), rewards (n,), and which have now ended.

        `active` are, in order, those that ran before and have not ended.
        """

    def close(self) -> None:
        """Give the environments back; called when the last episode has ended, or on an error."""


def name_starts(environment: Environment, seeds: Sequence[int]) -> tuple[str, ...] | None:
    """What distinguishes the episodes of these seeds before anybody acts; None where only playing tells.

    Without sticky actions an Atari game depends on its number of no-ops alone: equal names, equal games.
    """
    return tuple(f"noops-{count_noops(int(seed))}" for seed in seeds) if environment.atari else None


def name_episodes(
    environment: Environment, seeds: Sequence[int], starts: tuple[str, ...], *, masked: bool = False
) -> tuple[str, ...]:
    """What distinguishes the episodes of `seeds`, of which `starts` name the first observations.

    Episodes that begin alike are the same to a deterministic policy, unless chance goes on during play, or the
    observation does not show everything: then equal actions lead them apart, and every seed is an episode. That is
    tried with random actions, if `masked` with allowed ones, on episodes of the most frequent start, before any policy
    plays, so that the names are the same for all policies of a cell.
    """
    start, count = Counter(starts).most_common(1)[0]
    if environment.atari or count == 1:
        return starts
    alike = tuple(seed for seed, name in zip(seeds, starts, strict=True) if name == start)
    spec = gymnasium.registry.get(environment.id)
    maker: Any = spec and spec.entry_point
    apart = _part(environment, maker, alike[: environment.side_by_side or COMPARED_STARTS], masked=masked)
    return name_seeds(seeds) if apart else starts


def find_distinct(names: Sequence[str] | None, seeds: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first seed of every name, and for each seed its place among them; without names all seeds are distinct."""
    if names is None:
        return list(seeds), list(range(len(seeds)))
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    order = [places[name] for name in names]
    return [seeds[order.index(place)] for place in places.values()], order


@cache
def _part(environment: Environment, maker: Any, seeds: tuple[int, ...], *, masked: bool) -> bool:  # noqa: ARG001
    """Whether the episodes of `seeds` show different things when all of them get the same random actions.

    These are allowed ones where actions are `masked`. Asked once: a simulator may be slow. `maker`, a key of the cache,
    tells a user's class from an earlier one of its name.
    """
    bare, _ = make_environment(environment)
    space = bare.action_space
    bare.close()
    space.seed(PROBE_SEED)
    draws = np.random.default_rng(PROBE_SEED)
    traces = [hashlib.sha256() for _ in seeds]
    episodes = start_episodes(environment, seeds, masked=masked)
    try:
        observations = episodes.reset()
        active = np.arange(len(seeds))
        for _ in range(PROBE_STEPS):
            masks = read_masks(observations)
            alike = np.stack([space.sample()] * len(active)) if masks is None else draw_allowed(space, masks, draws)
            observations, rewards, done = episodes.step(active, alike)
            for place, observation, reward in zip(active, observations, rewards, strict=True):
                traces[place].update(np.ascontiguousarray(observation).tobytes() + reward.tobytes())
            active, observations = active[~done], observations[~done]
            if not len(active):
                break
    finally:
        episodes.close()
    return len({trace.digest() for trace in traces}) > 1


def start_episodes(environment: Environment, seeds: Sequence[int], *, masked: bool = False) -> Episodes:
    """Vectorised where we can, else one by one; `masked`: observations have masks of actions beside.

    Only environments that are stepped one by one may give masks; where one gives none there are none.
    """
    if environment.atari:
        return GameEpisodes(environment, seeds)
    if environment.id in DYNAMICS and not environment.time_feature:
        return VectorEpisodes(environment, seeds)
    if environment.walker is not None:
        return WalkEpisodes(environment, seeds, environment.walker)
    return SteppedEpisodes(environment, seeds, masked=masked)


class SteppedEpisodes:
    """Episodes in one gymnasium environment per seed, stepped one after the other.

    Environments are borrowed, or those that are `made` for these episodes alone. If `masked`, observations come with
    the masks that the environments give (`policies/masks.py`).
    """

    def __init__(
        self, environment: Environment, seeds: Sequence[int], made: list[Made] | None = None, *, masked: bool = False
    ) -> None:
        self._environment, self._seeds = environment, seeds
        self._borrowed = made is None
        self._made = ENVIRONMENTS.borrow(environment, len(seeds)) if made is None else made
        self._environments = [bare for bare, _ in self._made]
        self._limit = self._made[0][1]
        self._masks = MaskReader(self._environments, self._refuse) if masked else None
        self._during_steps = stop_watch if environment.extra in (DMC, MUJOCO) else contextlib.nullcontext

    def reset(self) -> NDArray[Any]:
        self._steps = np.zeros(len(self._seeds), dtype=np.int64)
        everyone = np.arange(len(self._seeds))
        found, infos = zip(*[self._ask(i, "reset", seed=int(self._seeds[i])) for i in everyone], strict=True)
        observations = self._read_observations(everyone, found)
        if self._masks is None:
            return observations
        self._masks.begin()
        return self._masks.add(everyone, observations, infos)

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        self._steps[active] += 1
        with self._during_steps():
            results = [self._ask(i, "step", action) for i, action in zip(active, actions, strict=True)]
        found, rewards, terminated, truncated, infos = zip(*results, strict=True)
        ended = np.array(terminated, dtype=np.bool_) | np.array(truncated, dtype=np.bool_)
        done = ended | (self._steps[active] >= self._limit)
        observations = self._read_observations(active, found, done)
        if self._masks is not None:
            observations = self._masks.add(active, observations, infos, done)
        return observations, self._read_rewards(active, rewards), done

    def close(self) -> None:
        if self._borrowed:
            ENVIRONMENTS.give_back(self._environment, self._made)
        else:
            close_environments(self._made)
        self._made, self._environments = [], []

    def _ask(self, index: int, method: str, *arguments: Any, **options: Any) -> tuple[Any, ...]:
        """What an environment answers: as many things as Gymnasium says; SpecError for less, and where it raises."""
        try:
            answer: tuple[Any, ...] = getattr(self._environments[index], method)(*arguments, **options)
        except QuarlError:
            raise
        except (Exception, SystemExit) as error:  # whatever the environment raises
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {first_line(error)} ({place.filename}:{place.lineno})"
            raise self._refuse(index, f"{method}() raised {what}", "mend it there") from error
        if not isinstance(answer, tuple) or len(answer) != ANSWERS[method]:
            given = f"{len(answer)} things" if isinstance(answer, tuple) else type(answer).__name__
            what = f"{method}() returned {given}, not the {ANSWERS[method]} of Gymnasium"
            raise self._refuse(index, what, "return them, or wrap it")
        return answer

    def _read_observations(
        self, active: NDArray[np.intp], found: Sequence[Any], done: Bools | None = None
    ) -> NDArray[Any]:
        """One batch; SpecError where one is not of the environment's own space, or would show a policy NaN."""
        space, remedy = self._environments[0].observation_space, "return one of its observation space"
        for index, one in zip(active, found, strict=True):
            if np.shape(one) != space.shape:
                raise self._refuse(index, f"an observation has the shape {np.shape(one)}, not {space.shape}", remedy)
        observations: NDArray[Any] = np.stack(found)
        wanted, kind = space.dtype, observations.dtype
        if kind.kind not in "fiu" or (wanted == np.uint8 and kind != wanted):
            raise self._refuse(active[0], f"an observation has the dtype {kind}, not {wanted}", remedy)
        if kind.kind == "f" and (strange := np.isnan(observations)).any():
            running = np.ones(len(active), np.bool_) if done is None else ~done  # nobody is asked about the last one
            if (bad := running & strange.reshape(len(active), -1).any(axis=1)).any():
                raise self._refuse(active[bad][0], "an observation has NaN", "end the episode, or clip what overflows")
        return observations

    def _read_rewards(self, active: NDArray[np.intp], rewards: Sequence[Any]) -> Rewards:
        """A finite number each, or an array of one; SpecError for anything else."""
        found, remedy = np.empty(len(rewards), dtype=np.float64), "its step() has to return one finite number"
        for place, (index, reward) in enumerate(zip(active, rewards, strict=True)):
            try:
                number = np.asarray(reward, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise self._refuse(index, f"a reward is no number ({error})", remedy) from error
            if number.shape not in ((), (1,)):
                raise self._refuse(index, f"a reward has the shape {number.shape}", remedy)
            found[place] = number.item()
        if (bad := ~np.isfinite(found)).any():
            raise self._refuse(active[bad][0], f"a reward is {found[bad][0]}", remedy)
        return found

    def _refuse(self, index: int, what: str, remedy: str) -> SpecError:
        where = f"seed {self._seeds[index]}, step {self._steps[index]}"
        return SpecError(f"environment {self._environment.id}, {where}: {what}; {remedy}")


class VectorEpisodes:
    """Our own dynamics, on the episodes that still run."""

    def __init__(self, environment: Environment, seeds: Sequence[int]) -> None:
        bare, self._limit = make_environment(environment)
        self._dynamics = DYNAMICS[environment.id]
        self._observations, states = [], []
        for seed in seeds:
            self._observations.append(bare.reset(seed=int(seed))[0])
            states.append(np.array(bare.unwrapped.state))  # type: ignore[attr-defined]
        bare.close()
        self._starts: State = np.stack(states, axis=1)

    def reset(self) -> NDArray[Any]:
        self._state = self._starts
        self._running = np.arange(self._starts.shape[1])
        self._steps = 0
        return np.stack(self._observations)

    def step(self, active: NDArray[np.intp], actions: NDArray[Any]) -> tuple[NDArray[Any], Rewards, Bools]:
        if len(active) < len(self._running):
            self._state = self._state.take(np.searchsorted(self._running, active), axis=1)
            self._running = active
        self._state, rewards, done = self._dynamics.advance(self._state, actions)
        self._steps += 1
        if self._steps >= self._limit:
            done = np.ones_like(done)
        return self._dynamics.observe(self._state), rewards, done

    def close(self) -> None:
        """Do nothing: the batch is arrays, and no environment is open."""
