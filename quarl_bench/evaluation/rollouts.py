"""Playing a policy: one process, a batch of episodes, every episode counted once.

A policy that was trained within masks of actions plays within them, where its environment gives some.

Policies act deterministically, or, where their outputs are logits, by sampling; the noise of it, and that on a net's
inputs, depends on the environment seed and the step alone, so that every scheme of a cell sees the same.

Whoever starts a process gives torch one thread (`torch.set_num_threads(1)`): nets are small, cores are for processes.
"""

import hashlib
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.acting import Acting, Recurrent, begin_acting
from quarl_bench.evaluation.agreement import Witness
from quarl_bench.evaluation.episodes import Episodes, find_distinct, name_episodes, name_starts, start_episodes
from quarl_bench.policies.policy import Policy, States, Visited
from quarl_bench.spec import Measurement, agree_on_episodes, name_seeds

SIDE_BY_SIDE = 256  # episodes played at once; more no longer pays


@dataclass(frozen=True)
class End:
    """What an episode came to, and the hash of its first observation."""

    start: str
    value: float  # its return
    length: int


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of one policy; arrays have one entry per seed."""

    seeds: tuple[int, ...]
    starts: tuple[str, ...]  # hashes of the first observations
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    agreement: float | None  # share of visited states in which the reference acts alike
    observations: NDArray[Any] | None  # visited states, in order, when they were asked for
    alike: NDArray[np.bool_] | None = None  # which of them the reference would have played itself

    @property
    def ends(self) -> Iterator[End]:
        """What each episode came to."""
        return map(End, self.starts, self.returns.tolist(), self.lengths.tolist())

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
    sigma: float = 0.0,
    shared: dict[int, End] | None = None,
) -> Rollouts:
    """Play one episode per environment seed; `reference` is asked in the states visited.

    Deterministic episodes that are known to be the same are played once. With `sampled` the outputs of the policy are
    logits of actions; `sigma` is the SD of noise on the net's inputs. Agreement is that of the episodes played, and so
    are the observations, of which every `keep_every`-th is kept (0: none).

    `shared` are episodes that one policy does not have to play, by seed, because another has. Where that policy is the
    `reference`, those are added in which it does the same in every state; where there is none, those are not played.
    It is asked in blocks, and convolutions in other blocks may differ in a last bit: only a tie that near would tell.
    """
    if not seeds:
        raise PolicyError("no environment seeds; evaluate at least one episode")
    names = None if sampled or sigma else name_starts(environment, seeds)
    played, order = find_distinct(names, seeds)
    found = dict(shared or {}) if reference is None else {}
    missing = [seed for seed in played if seed not in found]
    side_by_side = environment.side_by_side or SIDE_BY_SIDE
    chunks = [
        _play(policy, environment, missing[i : i + side_by_side], reference, keep_every, sampled, sigma)
        for i in range(0, len(missing), side_by_side)
    ]
    for chunk in chunks:
        found |= zip(chunk.seeds, chunk.ends, strict=True)
        if shared is not None and chunk.alike is not None:
            shared |= {seed: found[seed] for seed, alike in zip(chunk.seeds, chunk.alike, strict=True) if alike}
    ends = [found[seed] for seed in played]
    lengths = np.array([end.length for end in ends], dtype=np.int64)
    weighted = [chunk.agreement * chunk.lengths.sum() for chunk in chunks if chunk.agreement is not None]
    visited = [chunk.observations for chunk in chunks if chunk.observations is not None]
    return Rollouts(
        seeds=tuple(seeds),
        starts=names or tuple(end.start for end in ends),
        returns=np.array([end.value for end in ends], dtype=np.float64)[order],
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
    sigma: float = 0.0,
    shared: dict[int, End] | None = None,
) -> Measurement:
    """Returns of several policies, given as (name, policy), on the same environment seeds; `shared` as in `roll_out`.

    Episodes with noise differ by it: each seed is an episode. So it is where chance goes on during play, be it
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
            sigma=sigma,
            shared=shared,
        )
        for index, (_, policy) in enumerate(policies)
    ]
    masked = any(policy.head.masked for _, policy in policies)
    starts = agree_on_episodes(seeds, [name_seeds(seeds) if r.led_apart else r.starts for r in rollouts])
    return Measurement(
        policies=tuple(name for name, _ in policies),
        environment_seeds=tuple(seeds),
        episodes=name_seeds(seeds) if sampled or sigma else name_episodes(environment, seeds, starts, masked=masked),
        returns=tuple(tuple(r.returns.tolist()) for r in rollouts),
        lengths=tuple(tuple(r.lengths.tolist()) for r in rollouts),
        agreement=None if references is None else tuple(float(r.agreement or 0.0) for r in rollouts),
        deterministic=not sampled,
        starts=None if sampled or sigma else environment.starts,
    )


def visit(policy: Policy, environment: Environment, seeds: Sequence[int]) -> Generator[States]:
    """The states (running, ...) that `policy` visits, a batch per step; `Visited` where it is recurrent."""
    episodes = start_episodes(environment, seeds, masked=policy.head.masked)
    memory = Recurrent(len(seeds)) if policy.recurrent else None
    try:
        observations, active = episodes.reset(), np.arange(len(seeds))
        while len(active):
            if memory is None:
                yield observations
                actions = policy.act(observations)
            else:
                yield Visited(observations, memory.recall(policy, active))
                actions = memory.choose(policy, observations, active)
            observations, _, done = episodes.step(active, actions)
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
    sigma: float,
) -> Rollouts:
    acting = begin_acting(policy, environment, seeds, sampled=sampled, sigma=sigma)
    witness = None if reference is None else Witness(reference, acting, len(seeds))
    episodes = start_episodes(environment, seeds, masked=policy.head.masked)
    try:
        return _play_out(policy, acting, episodes, seeds, keep_every, witness)
    finally:
        episodes.close()


def _play_out(
    policy: Policy,
    acting: Acting,
    episodes: Episodes,
    seeds: Sequence[int],
    keep_every: int,
    witness: Witness | None,
) -> Rollouts:
    observations = episodes.reset()
    starts = tuple(hashlib.sha256(np.ascontiguousarray(o).tobytes()).hexdigest()[:16] for o in observations)
    active = np.arange(len(seeds))
    returns, totals = np.zeros((2, len(seeds)), dtype=np.float64)  # of all episodes; so far, of the active ones
    lengths = np.zeros(len(seeds), dtype=np.int64)
    steps = 0
    visited = []
    while len(active):
        drawn = acting.draw(active, observations)
        actions = acting.choose(policy, observations, drawn)
        if witness is not None:
            witness.see(active, observations, actions, drawn)
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
        agreement=None if witness is None else witness.tell(),
        observations=np.concatenate(visited) if visited else None,
        alike=None if witness is None else witness.tell_alike(),
    )
