"""Playing a policy: one process, a batch of episodes, every episode counted once.

Policies act deterministically, or, where their outputs are logits, by sampling with noise that depends on the
environment seed and the step alone, so that every scheme of a cell sees the same noise.

Whoever starts a process gives torch one thread (`torch.set_num_threads(1)`): nets are small, cores are for processes.
"""

import hashlib
import itertools
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.atari import STACK
from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.episodes import Episodes, name_episodes, name_starts, start_episodes
from quarl_bench.evaluation.gumbel import GumbelNoise
from quarl_bench.policies.head import ActionHead
from quarl_bench.policies.policy import Policy
from quarl_bench.spec import Measurement, agree_on_episodes, name_seeds

# Disjoint ranges of environment seeds: what selects or calibrates a policy never scores it.
TEST_SEEDS = 10_000
VALIDATION_SEEDS = 20_000
CALIBRATION_SEEDS = 30_000
SIDE_BY_SIDE = 256  # episodes played at once; more no longer pays
BATCH = 16  # episodes that are played for observations at a time
IMAGE_BATCH = 4  # the same for images, of which every `STACK`-th is kept: the frames between are in its stack
# Actions in images by the hash of the image. Argmax on Breakout ends in a circle of some twenty images, until the game
# is cut off after 27,000 steps: no image is looked at twice.
Known = dict[bytes, tuple[Any, ...]]
ACTION_TOLERANCE = 0.01  # continuous actions agree when they differ by at most this share of the action range


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of one policy; arrays have one entry per seed."""

    seeds: tuple[int, ...]
    starts: tuple[str, ...]  # hashes of the first observations
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    agreement: float | None  # share of visited states in which the reference acts alike
    observations: NDArray[Any] | None  # visited states, in order, when they were asked for

    @property
    def led_apart(self) -> bool:
        """Whether episodes that began alike ended otherwise, by more than the last digits of a batch's products."""
        ends = zip(self.starts, self.returns.round(6), self.lengths, strict=True)
        return len(set(ends)) > len(set(self.starts))


def roll_out(
    policy: Policy,
    environment: Environment,
    seeds: Sequence[int],
    *,
    reference: Policy | None = None,
    keep_every: int = 0,
    sampled: bool = False,
) -> Rollouts:
    """Play one episode per environment seed; `reference` is asked in the states visited.

    Deterministic episodes that are known to be the same are played once. With `sampled` the outputs of the policy are
    logits of actions. Agreement is that of the episodes played, and so are the observations, of which every
    `keep_every`-th is kept (0: none).
    """
    if not seeds:
        raise PolicyError("no environment seeds; evaluate at least one episode")
    names = None if sampled else name_starts(environment, seeds)
    played, order = _find_distinct(names, seeds)
    side_by_side = environment.side_by_side or SIDE_BY_SIDE
    chunks = [
        _play(policy, environment, played[i : i + side_by_side], reference, keep_every, sampled)
        for i in range(0, len(played), side_by_side)
    ]
    lengths = np.concatenate([chunk.lengths for chunk in chunks])
    weighted = [chunk.agreement * chunk.lengths.sum() for chunk in chunks if chunk.agreement is not None]
    visited = [chunk.observations for chunk in chunks if chunk.observations is not None]
    return Rollouts(
        seeds=tuple(seeds),
        starts=names or tuple(start for chunk in chunks for start in chunk.starts),
        returns=np.concatenate([chunk.returns for chunk in chunks])[order],
        lengths=lengths[order],
        agreement=float(sum(weighted) / lengths.sum()) if weighted else None,
        observations=np.concatenate(visited) if visited else None,
    )


def measure(
    policies: Sequence[tuple[str, Policy]],
    environment: Environment,
    seeds: Sequence[int],
    references: Sequence[Policy] | None = None,
    *,
    sampled: bool = False,
) -> Measurement:
    """Returns of several policies, given as (name, policy), on the same environment seeds.

    Sampled episodes differ by their noise: each seed is an episode. So it is where chance goes on during play, be it
    that only a policy's own actions show it.
    """
    seeds = [int(seed) for seed in seeds]
    rollouts = [
        roll_out(
            policy,
            environment,
            seeds,
            reference=None if references is None else references[index],
            sampled=sampled,
        )
        for index, (_, policy) in enumerate(policies)
    ]
    starts = agree_on_episodes(seeds, [name_seeds(seeds) if r.led_apart else r.starts for r in rollouts])
    return Measurement(
        policies=tuple(name for name, _ in policies),
        environment_seeds=tuple(seeds),
        episodes=name_seeds(seeds) if sampled else name_episodes(environment, seeds, starts),
        returns=tuple(tuple(r.returns.tolist()) for r in rollouts),
        lengths=tuple(tuple(r.lengths.tolist()) for r in rollouts),
        agreement=None if references is None else tuple(float(r.agreement or 0.0) for r in rollouts),
        deterministic=not sampled,
    )


def collect_observations(policy: Policy, environment: Environment, count: int, first_seed: int) -> NDArray[Any]:
    """At least one and at most `count` states that `policy` visits, in order, from seeds `first_seed` on."""
    batch, every = (IMAGE_BATCH, STACK) if environment.atari else (BATCH, 1)
    kept: list[NDArray[Any]] = []
    seed, total = first_seed, 0
    while total < count:
        seeds = range(seed, seed + batch)
        played, _ = _find_distinct(name_starts(environment, seeds), seeds)
        with closing(_visit(policy, environment, played)) as visited:
            for observations in itertools.islice(visited, 0, None, every):
                kept.append(observations)
                total += len(observations)
                if total >= count:
                    break
        seed += batch
    states: NDArray[Any] = np.concatenate(kept)[:count]
    return states


def _find_distinct(names: Sequence[str] | None, seeds: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first seed of every name, and for each seed its place among them; without names all seeds are distinct."""
    if names is None:
        return list(seeds), list(range(len(seeds)))
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    order = [places[name] for name in names]
    return [seeds[order.index(place)] for place in places.values()], order


def _visit(policy: Policy, environment: Environment, seeds: Sequence[int]) -> Generator[NDArray[Any]]:
    """The states (running, ...) that `policy` visits, a batch per step."""
    episodes = start_episodes(environment, seeds)
    try:
        observations, active = episodes.reset(), np.arange(len(seeds))
        while len(active):
            yield observations
            observations, _, done = episodes.step(active, policy.act(observations))
            active, observations = active[~done], observations[~done]
    finally:
        episodes.close()


def _play(
    policy: Policy,
    environment: Environment,
    seeds: Sequence[int],
    reference: Policy | None,
    keep_every: int,
    sampled: bool,
) -> Rollouts:
    episodes = start_episodes(environment, seeds)
    try:
        policies = [policy] if reference is None else [policy, reference]
        noise = GumbelNoise(seeds, policy.net.outputs) if sampled else None
        known: Known | None = {} if environment.atari and not sampled else None
        return _play_out(policies, episodes, seeds, keep_every, noise, known)
    finally:
        episodes.close()


def _play_out(
    policies: Sequence[Policy],
    episodes: Episodes,
    seeds: Sequence[int],
    keep_every: int,
    noise: GumbelNoise | None,
    known: Known | None,
) -> Rollouts:
    """The first of `policies` plays; a second one is asked in the states visited."""
    observations = episodes.reset()
    starts = tuple(hashlib.sha256(np.ascontiguousarray(o).tobytes()).hexdigest()[:16] for o in observations)
    active = np.arange(len(seeds))
    returns, totals = np.zeros((2, len(seeds)), dtype=np.float64)  # of all episodes; so far, of the active ones
    lengths = np.zeros(len(seeds), dtype=np.int64)
    agreed = steps = 0
    visited = []
    while len(active):
        drawn = None if noise is None else noise.draw(active)
        actions, *expected = _act(policies, observations, drawn, known)
        if expected:
            agreed += count_agreement(actions, expected[0], policies[1].head)
        if keep_every and steps % keep_every == 0:
            visited.append(observations)
        observations, rewards, done = episodes.step(active, actions)
        totals += rewards
        steps += 1
        if done.any():
            returns[active[done]], lengths[active[done]] = totals[done], steps
            active, observations, totals = active[~done], observations[~done], totals[~done]
    return Rollouts(
        seeds=tuple(seeds),
        starts=starts,
        returns=returns,
        lengths=lengths,
        agreement=agreed / int(lengths.sum()) if len(policies) > 1 else None,
        observations=np.concatenate(visited) if visited else None,
    )


def _act(
    policies: Sequence[Policy],
    observations: NDArray[Any],
    drawn: NDArray[np.float64] | None,
    known: Known | None,
) -> list[NDArray[Any]]:
    """Each policy's deterministic actions, looked up in `known` if there is one; or sampled with the noise `drawn`."""
    if drawn is not None:
        return [(policy.outputs(observations) + drawn).argmax(axis=1) for policy in policies]
    if known is None:
        return [policy.act(observations) for policy in policies]
    names = [hashlib.sha256(observation).digest() for observation in observations]
    fresh = {name: index for index, name in enumerate(names) if name not in known}
    if fresh:
        asked = observations[list(fresh.values())]
        known.update(zip(fresh, zip(*(policy.act(asked) for policy in policies), strict=True), strict=True))
    return [np.array(actions) for actions in zip(*(known[name] for name in names), strict=True)]


def count_agreement(actions: NDArray[Any], expected: NDArray[Any], head: ActionHead) -> int:
    """In how many states the actions agree: equal indices, or values within `ACTION_TOLERANCE` of each other."""
    if head.low is None or head.high is None:
        return int((actions == expected).sum())
    return int((np.abs(actions - expected) <= ACTION_TOLERANCE * (head.high - head.low)).all(axis=1).sum())
