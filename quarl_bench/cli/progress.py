"""Bars of long commands: how far one is and what is left, on a terminal alone, beside the result."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # `--help` takes no time
    from tqdm import tqdm

    from quarl_bench.environments.registry import Environment
    from quarl_bench.policies.clipping import AnyPolicy
    from quarl_bench.policies.policy import Policy, PolicyNet, States
    from quarl_bench.quantization.scheme import Scheme

Result = TypeVar("Result")
AT_MOST = "{desc}: {percentage:3.0f}%|{bar}| {n:.0f} of at most {total:.0f} {unit} [{elapsed}<{remaining}{postfix}]"


def open_bar(total: float | None, unit: str, name: str = "", **settings: Any) -> "tqdm[Any]":
    """A bar on stderr, silent where that is no terminal."""
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, desc=name or None, file=sys.stderr, disable=None, leave=False, **settings)


def collect(results: Iterable[Result], total: int, unit: str, name: Callable[[Result], str]) -> list[Result]:
    """All `results`, with a bar that counts them in `unit`s and names the last one."""
    collected = []
    with open_bar(total, unit) as bar:
        for result in results:
            collected.append(result)
            step(bar, name(result))
    return collected


def step(bar: "tqdm[Any]", name: str = "") -> None:
    """One unit further; `name` says what is done."""
    bar.set_postfix_str(name)
    bar.update()


class EpisodeMeter:
    """Of how many episodes run at each step: how many are over, and which part of the others, by their `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit, self._ended, self._running, self._step = limit, 0, 0, 0

    def hear(self, running: int) -> float:
        """The episodes so far, those that still run in parts; `running` of them take a step now."""
        if running > self._running or self._step == self._limit:  # the next batch begins
            self._ended, self._step = self._ended + self._running, 0
        else:
            self._ended += self._running - running
        self._running, self._step = running, self._step + 1
        return self._ended + running * (self._step - 1) / self._limit


@contextmanager
def show_episodes(policy: "AnyPolicy", environment: "Environment", episodes: int, name: str) -> "Iterator[AnyPolicy]":
    """The policy, and a bar of its episodes while it plays."""
    from quarl_bench.policies.watching import watch_policy

    with open_bar(episodes, "episode", name) as bar:
        if bar.disable:
            yield policy
            return
        meter = EpisodeMeter(find_limit(environment))

        def hear(running: int) -> None:
            bar.update(min(round(meter.hear(running), 1), episodes) - bar.n)

        yield watch_policy(policy, hear)
        bar.update(episodes - bar.n)


def find_limit(environment: "Environment") -> int:
    """Steps after which an episode ends at the latest."""
    from quarl_bench.environments.registry import ENVIRONMENTS

    made = ENVIRONMENTS.borrow(environment, 1)
    ENVIRONMENTS.give_back(environment, made)
    return made[0][1]


def show_calibration(policy: "PolicyNet", environment: "Environment") -> "States":
    """What `calibrate` gives, with a bar of the states."""
    from quarl_bench.environments.atari import STACK
    from quarl_bench.evaluation.calibration import calibrate, count_calibration
    from quarl_bench.policies.watching import watch_policy

    visited = count_calibration(environment) * (STACK if environment.atari else 1)  # of images every `STACK`-th is kept
    with open_bar(visited, "state", "calibrating") as bar:

        def hear(running: int) -> None:
            bar.update(running)

        return calibrate(policy if bar.disable else watch_policy(policy, hear), environment)


def quantize_with_bar(policy: "PolicyNet", scheme: "Scheme", environment: "Environment") -> "Policy":
    """What `quantize_calibrated` gives, with a bar of the states on which it is calibrated."""
    from quarl_bench.evaluation.calibration import quantize_calibrated

    return quantize_calibrated(policy, scheme, environment, show_calibration)
