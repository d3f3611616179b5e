"""Playing a policy: one process, a batch of episodes, every episode counted once.

A policy that was trained within masks of actions plays within them, where its environment gives some.

Policies act deterministically, or, where their outputs are logits, by sampling; the noise of it, and that on a net's
inputs, depends on the environment seed and the step alone, so that every scheme of a cell sees the same.

Whoever starts a process gives torch one thread (`torch.set_num_threads(1)`): nets are small, cores are for processes.
"""

import hashlib
import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.acting import Acting, Recurrent, Way, begin_acting
from quarl_bench.evaluation.agreement import Witness
from quarl_bench.evaluation.batches.crossings import Crossings
from quarl_bench.evaluation.batches.episodes import Episodes, find_distinct, name_episodes, name_starts, start_episodes
from quarl_bench.evaluation.batches.games import GameEpisodes
from quarl_bench.policies.policy import Policy, States, Visited
from quarl_bench.spec import Measurement, agree_on_episodes, name_seeds

SIDE_BY_SIDE = 256  # episodes played at once; more no longer pays
# Of so many states of an Atari game the reference is asked about one, once it has acted otherwise: in all of them it
# would compute as much as the policy that plays. A prime, because argmax goes round in circles.
RARELY = 7


@dataclass(frozen=True)
class End:
    """What an episode came to, and the hash of its first observation."""

    start: str
    value: float  # its return
    length: int
    agreed: int = field(default=0, compare=False)  # states in which the reference acts alike; on Atari an estimate
    alike: bool = field(default=False, compare=False)  # whether it does so in every state


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Episodes of one policy; arrays have one entry per seed."""

    seeds: tuple[int, ...]
    starts: tuple[str, ...]  # hashes of the first observations
    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]
    agreement: float | None  # share of visited states in which the reference acts alike; on Atari an estimate
    observations: NDArray[Any] | None  # visited states, in order, when they were asked for

    @property
    def led_apart(self) -> bool:
        """Whether episodes that began alike ended otherwise, by more than the last digits of a batch's products."""
        ends = zip(self.starts, self.returns.round(6), self.lengths, strict=True)
        return len(set(ends)) > len(set(self.starts))


@dataclass(frozen=True)
class Request:
    """Episodes to be played, one per environment seed, all in one way.

    `shared` are episodes that one policy does not have to play, by seed, because another has.
    """

    seeds: Sequence[int]
    way: Way
    shared: dict[int, End] | None = None


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

    Where the policy is the `reference` of another, those episodes are added to what is `shared` in which it does the
    same in every state; where there is no reference, those are not played. It is asked in blocks, and convolutions in
    other blocks may differ in a last bit: only a tie that near would tell.
    """
    request = Request(seeds, Way(sampled=sampled, sigma=sigma), shared)
    return roll_out_all(policy, environment, [request], reference=reference, keep_every=keep_every)[0]


def roll_out_all(
    policy: Policy,
    environment: Environment,
    requests: Sequence[Request],
    *,
    reference: Policy | None = None,
    keep_every: int = 0,
) -> list[Rollouts]:
    """The same for several ways of one policy: on Atari in the same batches, where argmax has to come first.

    Observations are kept where there is one request.
    """
    plans = [_Plan(environment, request, asked=reference is not None) for request in requests]
    size = environment.side_by_side or SIDE_BY_SIDE
    queues = [[(plan, seed) for seed in plan.missing] for plan in plans]
    visited: list[NDArray[Any]] = []
    for queue in [[*itertools.chain(*queues)]] if environment.atari else queues:
        for start in range(0, len(queue), size):
            chunk = queue[start : start + size]
            ways, seeds = [plan.request.way for plan, _ in chunk], [seed for _, seed in chunk]
            ends, seen = _play(policy, environment, seeds, ways, reference, keep_every)
            for (plan, seed), end in zip(chunk, ends, strict=True):
                plan.add(seed, end, reference)
            visited += seen
    observations = np.concatenate(visited) if visited else None
    return [plan.tell(observations) for plan in plans]


class _Plan:
    """Which episodes of one request have to be played, and what came of them."""

    def __init__(self, environment: Environment, request: Request, *, asked: bool) -> None:
        if not request.seeds:
            raise PolicyError("no environment seeds; evaluate at least one episode")
        self.request, self._asked = request, asked
        self._names = None if request.way.noisy else name_starts(environment, request.seeds)
        self._played, self._order = find_distinct(self._names, request.seeds)
        self._found = {} if asked else dict(request.shared or {})
        self.missing = [seed for seed in self._played if seed not in self._found]

    def add(self, seed: int, end: End, reference: Policy | None) -> None:
        """What the episode of `seed` came to; it is shared where `reference` would have played it itself."""
        self._found[seed] = end
        alike = reference is not None and reference.head.discrete and end.alike
        if alike and self.request.shared is not None:
            self.request.shared[seed] = end

    def tell(self, observations: NDArray[Any] | None) -> Rollouts:
        """All of them, those too that were not played because they are the same."""
        ends = [self._found[seed] for seed in self._played]
        lengths = np.array([end.length for end in ends], dtype=np.int64)
        return Rollouts(
            seeds=tuple(self.request.seeds),
            starts=self._names or tuple(end.start for end in ends),
            returns=np.array([end.value for end in ends], dtype=np.float64)[self._order],
            lengths=lengths[self._order],
            agreement=float(sum(end.agreed for end in ends) / lengths.sum()) if self._asked else None,
            observations=observations,
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
    request = Request(seeds, Way(sampled=sampled, sigma=sigma), shared)
    return measure_all(policies, environment, [request], references)[0]


def measure_all(
    policies: Sequence[tuple[str, Policy]],
    environment: Environment,
    requests: Sequence[Request],
    references: Sequence[Policy] | None = None,
) -> list[Measurement]:
    """The same for several ways, a measurement each; see `roll_out_all`."""
    requests = [replace(request, seeds=[int(seed) for seed in request.seeds]) for request in requests]
    asked = [None] * len(policies) if references is None else references
    played = [
        roll_out_all(policy, environment, requests, reference=reference)
        for (_, policy), reference in zip(policies, asked, strict=True)
    ]
    masked = any(policy.head.masked for _, policy in policies)
    names = tuple(name for name, _ in policies)
    return [
        _join(names, environment, request, rollouts, masked=masked)
        for request, *rollouts in zip(requests, *played, strict=True)
    ]


def _join(
    names: tuple[str, ...], environment: Environment, request: Request, rollouts: Sequence[Rollouts], *, masked: bool
) -> Measurement:
    """The measurement of policies that played the same request."""
    seeds, noisy = request.seeds, request.way.noisy
    starts = agree_on_episodes(seeds, [name_seeds(seeds) if r.led_apart else r.starts for r in rollouts])
    agreements = [r.agreement for r in rollouts if r.agreement is not None]
    return Measurement(
        policies=names,
        environment_seeds=tuple(seeds),
        episodes=name_seeds(seeds) if noisy else name_episodes(environment, seeds, starts, masked=masked),
        returns=tuple(tuple(r.returns.tolist()) for r in rollouts),
        lengths=tuple(tuple(r.lengths.tolist()) for r in rollouts),
        agreement=tuple(agreements) if agreements else None,
        deterministic=not request.way.sampled,
        starts=None if noisy else environment.starts,
    )


def visit(policy: Policy, environment: Environment, seeds: Sequence[int]) -> Generator[States]:
    """The states (running, ...) that `policy` visits, a batch per step; `Visited` where it is recurrent."""
    acting = begin_acting(policy, environment, seeds, [Way()])
    episodes = start_episodes(environment, seeds, masked=policy.head.masked)
    try:
        observations, active = episodes.reset(), np.arange(len(seeds))
        while len(active):
            if isinstance(acting, Recurrent):
                yield Visited(observations, acting.recall(policy, active))
            else:
                yield observations
            actions = acting.choose(policy, observations, acting.draw(active, observations))
            observations, _, done = episodes.step(active, actions)
            active, observations = active[~done], observations[~done]
    finally:
        episodes.close()


def _play(
    policy: Policy,
    environment: Environment,
    seeds: Sequence[int],
    ways: Sequence[Way],
    reference: Policy | None,
    keep_every: int,
) -> tuple[list[End], list[NDArray[Any]]]:
    """What one batch of episodes came to, and every `keep_every`-th of the batches of states that it visited."""
    acting = begin_acting(policy, environment, seeds, ways)
    every = RARELY if environment.atari else 1
    witness = None if reference is None else Witness(reference, acting, len(seeds), every)
    episodes = start_episodes(environment, seeds, masked=policy.head.masked)
    crossings = Crossings()
    if isinstance(episodes, GameEpisodes) and not keep_every:  # who wants the states wants those of all games
        crossings = Crossings(episodes.name_state, sum(not way.noisy for way in ways))
    try:
        return _play_out(policy, acting, episodes, len(seeds), keep_every, witness, crossings)
    finally:
        episodes.close()


def _play_out(
    policy: Policy,
    acting: Acting,
    episodes: Episodes,
    count: int,
    keep_every: int,
    witness: Witness | None,
    crossings: Crossings,
) -> tuple[list[End], list[NDArray[Any]]]:
    observations = episodes.reset()
    starts = [hashlib.sha256(np.ascontiguousarray(o).tobytes()).hexdigest()[:16] for o in observations]
    active = np.arange(count)
    returns, totals = np.zeros((2, count), dtype=np.float64)  # of all episodes; so far, of the active ones
    lengths = np.zeros(count, dtype=np.int64)
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
        done = crossings.end(active, done, steps, totals)
        if done.any():
            returns[active[done]], lengths[active[done]] = totals[done], steps
            active, observations, totals = active[~done], observations[~done], totals[~done]
    agreed, alike = (np.zeros(count, np.int64),) * 2 if witness is None else witness.tell(crossings)
    returns, lengths = crossings.complete(returns, lengths)
    return [*map(End, starts, returns.tolist(), lengths.tolist(), agreed.tolist(), alike.tolist())], visited
