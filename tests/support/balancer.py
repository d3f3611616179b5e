"""A policy that balances CartPole, written down instead of trained."""

import numpy as np

from tests.support.strategies import make_linear_policy

BALANCER = make_linear_policy(np.outer([-1.0, 1.0], [0.02, 0.2, 1.0, 0.6]))  # 500 steps of CartPole
ABOUT = {"algo": "ppo", "environment": "CartPole-v1", "seed": 0, "origin": "made by hand"}
