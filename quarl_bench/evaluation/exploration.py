"""How much a policy explores, by the paper's proxy: the variance of its action probabilities (QuaRL, ICLR, Figure 1).

A low variance is a flat distribution, which explores. The proxy needs a softmax: of a Gaussian policy the variance of
the actions themselves is measured, and its sign is the opposite (a wide Gaussian explores). Values have none.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.special
import torch
from numpy.typing import NDArray
from stable_baselines3.common.base_class import BaseAlgorithm

from quarl_bench.environments.registry import Environment
from quarl_bench.evaluation.rollouts import roll_out
from quarl_bench.policies.masks import read_masks
from quarl_bench.policies.policy import Policy, PolicyNet
from quarl_bench.quantization.net import Linear, Net

RANDOM_SEEDS = 40_000  # environment seeds of the states that every run is asked about
EPISODES = 8
STATES = 1_000


def describe_exploration(model: BaseAlgorithm, policy: Policy, states: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Mean variance over each set of `states` (n, ...), and what it is of: `probabilities` or `actions`."""
    if policy.head.discrete:
        return {"of": "probabilities"} | {name: measure_variance(policy, seen) for name, seen in states.items()}
    return {"of": "actions"} | {name: measure_width(model, policy, seen) for name, seen in states.items()}


def measure_width(model: BaseAlgorithm, policy: Policy, observations: NDArray[Any]) -> float:
    """Mean over states (n, ...) and dimensions of the variance of a Gaussian policy's actions, before any squashing."""
    inputs = torch.from_numpy(policy.transform.apply(observations)).to(model.device)
    with torch.no_grad():
        distribution: Any = model.policy.get_distribution(inputs)  # type: ignore[operator]  # an actor-critic's
    return float(distribution.distribution.variance.mean())


def measure_variance(policy: Policy, observations: NDArray[Any]) -> float:
    """Mean over states (n, ...) of the variance of A action probabilities: 0 if uniform, (A - 1) / A^2 if sure.

    Of an action of several parts the mean over these.
    """
    logits = policy.head.weigh(policy.outputs(observations).astype(np.float64), read_masks(observations))
    parts = [scipy.special.softmax(part, axis=1).var(axis=1).mean() for part in policy.head.split(logits)]
    return float(np.mean(parts))


def state_interval(environment: Environment) -> int:
    """Every how many steps a state is kept: images are large and change little."""
    return 16 if environment.atari else 1


def collect_random_states(policy: PolicyNet, environment: Environment) -> NDArray[Any]:
    """States (n, ...) that are the same for every policy of these shapes.

    Uniformly random actions visit them, or, where actions are continuous, a random linear controller does.
    """
    shape, discrete = (policy.net.outputs, int(np.prod(policy.net.input_shape))), policy.head.discrete
    weight = np.zeros(shape) if discrete else np.random.default_rng(RANDOM_SEEDS).normal(size=shape)
    layer = Linear(weight.astype(np.float32), np.zeros(policy.net.outputs, np.float32))
    raw = replace(policy.transform, normalization=None)  # statistics are a policy's own
    random = PolicyNet(raw, Net(policy.net.input_shape, (layer,)), policy.head)
    seeds = range(RANDOM_SEEDS, RANDOM_SEEDS + EPISODES)
    visited = roll_out(
        random, environment, seeds, sampled=discrete, keep_every=state_interval(environment)
    ).observations
    states: NDArray[Any] = np.concatenate([visited] if visited is not None else [])[:STATES]
    return states
