"""Measurements of returns that a test makes up."""

from quarl_bench.spec import Measurement


def measure_all(returns):
    """A measurement of these returns (policies, episodes)."""
    policies, episodes = returns.shape
    rows, seeds = tuple(map(tuple, returns.tolist())), tuple(range(episodes))
    names = tuple(f"e{i}" for i in seeds)
    return Measurement(tuple(map(str, range(policies))), seeds, names, rows, ((1,) * episodes,) * policies)
