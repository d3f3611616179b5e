"""Whole numbers as a user types them or passes them, and how large they may be. Standard library only."""

import argparse
from numbers import Integral
from typing import Any

from quarl_bench.errors import SpecError

MOST = 10**6  # of episodes, states and whatever else is kept in memory
MOST_EPISODES = 10_000  # environment seeds; behind them those begin that select and calibrate policies
MOST_STEPS = 10**9  # of training, which are not
MOST_SEED = 2**32 - 1  # of NumPy's generators


def read_natural(text: str, most: int = MOST) -> int:
    """A whole number from 0 to `most`; argparse reports signs, fractions and what is larger."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    if len(text) > len(str(MOST_SEED)) or int(text) > most:  # Python refuses to read thousands of digits
        raise argparse.ArgumentTypeError(f"{text!r} is too large; give at most {most}")
    return int(text)


def read_positive(text: str, most: int = MOST) -> int:
    """A whole number from 1 to `most`; argparse reports anything else."""
    if not text.isdecimal() or not text.strip("0"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return read_natural(text, most)


def read_episodes(text: str) -> int:
    """The episodes that score a policy: a whole number from 1 to MOST_EPISODES."""
    return read_positive(text, MOST_EPISODES)


def check_episodes(number: Any) -> None:
    """SpecError unless `number`, of a caller in Python, is what `read_episodes` would read."""
    if not isinstance(number, Integral) or not 1 <= int(number) <= MOST_EPISODES:
        raise SpecError(f"episodes {number!r}: give a whole number from 1 to {MOST_EPISODES}")
