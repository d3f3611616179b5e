"""Playing with noise on the normalized observation (LQCC, section 3.3): net input + sigma * N(0, 1).

The normal numbers of an episode depend on its environment seed and step alone: every policy, scheme and sigma sees the
same ones, so that differences are not of the noise. It comes behind the normalization's clip.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quarl_bench.environments.registry import Environment
from quarl_bench.errors import PolicyError
from quarl_bench.evaluation.episodes import start_episodes
from quarl_bench.policies.policy import Policy

STREAM = 6287  # keeps the noise apart from whatever else an environment seed seeds
SIGMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, eq=False)
class NoisyEpisodes:
    """One episode per seed under one sigma."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]


def play_noisy(policy: Policy, environment: Environment, seeds: Sequence[int], sigma: float) -> NoisyEpisodes:
    """Play one episode per environment seed, deterministic but for the noise; PolicyError for a sigma below 0."""
    if not seeds or not sigma >= 0:
        raise PolicyError(f"noise of SD {sigma} on {len(seeds)} episodes: it takes an SD of at least 0 and one episode")
    size = environment.side_by_side or len(seeds)
    parts = [_play(policy, environment, seeds[i : i + size], sigma) for i in range(0, len(seeds), size)]
    returns, lengths = ([getattr(part, name) for part in parts] for name in ("returns", "lengths"))
    return NoisyEpisodes(np.concatenate(returns), np.concatenate(lengths))


def _play(policy: Policy, environment: Environment, seeds: Sequence[int], sigma: float) -> NoisyEpisodes:
    streams = [np.random.default_rng([STREAM, int(seed)]) for seed in seeds]
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    episodes = start_episodes(environment, seeds)
    try:
        observations, active = episodes.reset(), np.arange(len(seeds))
        while len(active):
            inputs = policy.transform.apply(observations)
            drawn = np.stack([streams[index].standard_normal(inputs.shape[1], dtype=np.float32) for index in active])
            outputs = policy.net.forward(inputs + np.float32(sigma) * drawn)
            observations, rewards, done = episodes.step(active, policy.head.act(outputs))
            returns[active] += rewards
            lengths[active] += 1
            active, observations = active[~done], observations[~done]
    finally:
        episodes.close()
    return NoisyEpisodes(returns, lengths)
