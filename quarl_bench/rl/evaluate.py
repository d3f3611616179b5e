"""Playing a deterministic policy: one process, a batch of episodes, every episode counted once.

Whoever starts a process gives torch one thread (`torch.set_num_threads(1)`): nets are small, cores are for processes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.policy.head import ActionHead
from quarl_bench.policy.policy import Policy
from quarl_bench.rl.environments import Environment
from quarl_bench.rl.episodes import Episodes, start_episodes
from quarl_bench.spec import Measurement

# Disjoint ranges of environment seeds: what selects or calibrates a policy never scores it.
TEST_SEEDS = 10_000
VALIDATION_SEEDS = 20_000
CALIBRATION_SEEDS = 30_000
SIDE_BY_SIDE = 256  # episodes played at once; more no longer pays
BATCH = 16  # episodes that are played for observations at a time
NEAR = 0.01  # continuous actions agree when they differ by at most this share of the action range


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of one policy; arrays have one entry per seed."""

    seeds: tuple[int, ...]
    starts: tuple[str, ...]  # hashes of the first observations
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    agreement: float | None  # share of visited states in which the reference acts alike
    observations: NDArray[Any] | None  # visited states, in order, when they were asked for


def roll_out(
    policy: Policy,
    environment: Environment,
    seeds: Sequence[int],
    *,
    reference: Policy | None = None,
    keep_observations: bool = False,
) -> Rollouts:
    """Play one episode per environment seed, deterministically; `reference` is asked in the states visited."""
    if not seeds:
        raise PolicyError("no environment seeds; evaluate at least one episode")
    chunks = [
        _play(policy, environment, seeds[i : i + SIDE_BY_SIDE], reference, keep_observations)
        for i in range(0, len(seeds), SIDE_BY_SIDE)
    ]
    lengths = np.concatenate([chunk.lengths for chunk in chunks])
    weighted = [chunk.agreement * chunk.lengths.sum() for chunk in chunks if chunk.agreement is not None]
    visited = [chunk.observations for chunk in chunks if chunk.observations is not None]
    return Rollouts(
        seeds=tuple(seeds),
        starts=tuple(start for chunk in chunks for start in chunk.starts),
        returns=np.concatenate([chunk.returns for chunk in chunks]),
        lengths=lengths,
        agreement=float(sum(weighted) / lengths.sum()) if weighted else None,
        observations=np.concatenate(visited) if visited else None,
    )


def measure(
    policies: Sequence[tuple[str, Policy]],
    environment: Environment,
    seeds: Sequence[int],
    references: Sequence[Policy] | None = None,
) -> Measurement:
    """Returns of several policies, given as (name, policy), on the same environment seeds."""
    rollouts = [
        roll_out(policy, environment, seeds, reference=None if references is None else references[index])
        for index, (_, policy) in enumerate(policies)
    ]
    return Measurement(
        policies=tuple(name for name, _ in policies),
        environment_seeds=tuple(int(seed) for seed in seeds),
        episodes=rollouts[0].starts,
        returns=tuple(tuple(r.returns.tolist()) for r in rollouts),
        lengths=tuple(tuple(r.lengths.tolist()) for r in rollouts),
        agreement=None if references is None else tuple(float(r.agreement or 0.0) for r in rollouts),
    )


def collect_observations(policy: Policy, environment: Environment, count: int, first_seed: int) -> NDArray[Any]:
    """At least one and at most `count` states that `policy` visits, in order, from seeds `first_seed` on."""
    visited: list[NDArray[Any]] = []
    seed, total = first_seed, 0
    while total < count:
        rollouts = roll_out(policy, environment, range(seed, seed + BATCH), keep_observations=True)
        assert rollouts.observations is not None
        visited.append(rollouts.observations)
        total += len(rollouts.observations)
        seed += BATCH
    states: NDArray[Any] = np.concatenate(visited)[:count]
    return states


def _play(
    policy: Policy, environment: Environment, seeds: Sequence[int], reference: Policy | None, keep: bool
) -> Rollouts:
    episodes = start_episodes(environment, seeds)
    try:
        return _play_out(policy, episodes, seeds, reference, keep)
    finally:
        episodes.close()


def _play_out(
    policy: Policy, episodes: Episodes, seeds: Sequence[int], reference: Policy | None, keep: bool
) -> Rollouts:
    observations = episodes.reset()
    starts = tuple(hashlib.sha256(np.ascontiguousarray(o).tobytes()).hexdigest()[:16] for o in observations)
    active = np.arange(len(seeds))
    returns, totals = np.zeros((2, len(seeds)), dtype=np.float64)  # of all episodes; so far, of the active ones
    lengths = np.zeros(len(seeds), dtype=np.int64)
    agreed = steps = 0
    visited = []
    while len(active):
        actions = policy.act(observations)
        if reference is not None:
            agreed += count_agreement(actions, reference.act(observations), reference.head)
        if keep:
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
        agreement=None if reference is None else agreed / int(lengths.sum()),
        observations=np.concatenate(visited) if keep else None,
    )


def count_agreement(actions: NDArray[Any], expected: NDArray[Any], head: ActionHead) -> int:
    """In how many states the actions are alike: equal indices, or values that are `NEAR` each other."""
    if head.low is None or head.high is None:
        return int((actions == expected).sum())
    return int((np.abs(actions - expected) <= NEAR * (head.high - head.low)).all(axis=1).sum())
