"""How much a policy explores, by the paper's proxy: the variance of its action probabilities (QuaRL, ICLR, Figure 1).

A low variance is a flat distribution, which explores. The proxy needs a softmax: for Gaussian policies the sign flips
(a wide Gaussian explores), and for values there are no probabilities.
"""

from typing import Any

import numpy as np
import scipy.special
from numpy.typing import NDArray

from quarl_bench.net import Linear, Net
from quarl_bench.policy.policy import Policy, PolicyNet
from quarl_bench.rl.environments import Environment
from quarl_bench.rl.evaluate import roll_out

RANDOM_SEEDS = 40_000  # environment seeds of the states that every run is asked about
EPISODES = 8
STATES = 1_000


def measure_variance(policy: Policy, observations: NDArray[Any]) -> float:
    """Mean over states (n, ...) of the variance of A action probabilities: 0 if uniform, (A - 1) / A^2 if sure."""
    probabilities = scipy.special.softmax(policy.outputs(observations).astype(np.float64), axis=1)
    return float(probabilities.var(axis=1).mean())


def thin_states(environment: Environment) -> int:
    """Every how many steps a state is kept: images are large and change little."""
    return 16 if environment.atari else 1


def collect_random_states(policy: PolicyNet, environment: Environment) -> NDArray[Any]:
    """States (n, ...) that uniformly random actions visit: the same ones for every policy of these shapes."""
    size = int(np.prod(policy.net.input_shape))
    flat = Linear(np.zeros((policy.net.outputs, size), np.float32), np.zeros(policy.net.outputs, np.float32))
    uniform = PolicyNet(policy.transform, Net(policy.net.input_shape, (flat,)), policy.head)
    seeds = range(RANDOM_SEEDS, RANDOM_SEEDS + EPISODES)
    visited = roll_out(uniform, environment, seeds, sampled=True, keep_every=thin_states(environment)).observations
    states: NDArray[Any] = np.concatenate([visited] if visited is not None else [])[:STATES]
    return states
