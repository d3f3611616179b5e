"""Bars of play: how many episodes are over, and how many states are visited, while a policy plays."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from quarl_bench.environments.atari.games import STACK
from quarl_bench.environments.registry import ENVIRONMENTS, Environment
from quarl_bench.evaluation.batches.episodes import find_distinct, name_starts
from quarl_bench.evaluation.calibration import collect_states, count_calibration, quantize_calibrated
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS
from quarl_bench.policies.clipping import AnyPolicy
from quarl_bench.policies.policy import Policy, PolicyNet, States
from quarl_bench.policies.watching import watch_policy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system.bars import open_bar

NEW_IMAGES = 200  # batches of images among which the largest tells how many games run: images seen before are left out


class EpisodeMeter:
    """Of how many episodes run at each step: how many are over, and which part of the others, by their `limit`.

    Of what is told the largest of the last `window` numbers counts.
    """

    def __init__(self, limit: int, window: int = 1) -> None:
        self._limit, self._ended, self._running, self._step = limit, 0, 0, 0
        self._told: deque[int] = deque(maxlen=window)

    def hear(self, told: int) -> float:
        """The episodes so far, those that still run in parts; `told` of them take a step now."""
        if told > self._running or self._step == self._limit:  # the next batch begins
            self._ended, self._step = self._ended + self._running, 0
            self._told.clear()
            self._running = told
        self._told.append(told)
        running = max(self._told)
        self._ended += self._running - running
        self._running, self._step = running, self._step + 1
        return self._ended + running * (self._step - 1) / self._limit


@contextmanager
def show_episodes(
    policy: AnyPolicy,
    environment: Environment,
    seeds: Sequence[int],
    name: str,
    *,
    sampled: bool = False,
    shown: bool | None = None,
    delay: float = 0.0,
) -> Iterator[AnyPolicy]:
    """The policy, and a bar of its episodes while it plays on environment `seeds`; `delay` seconds are silent."""
    if shown is False:
        yield policy
        return
    played, _ = find_distinct(None if sampled else name_starts(environment, seeds), seeds)
    episodes = len(played)
    with open_bar(episodes, "episode", name, shown=shown, delay=delay) as bar:
        if bar.disable:
            yield policy
            return
        meter = EpisodeMeter(find_limit(environment), NEW_IMAGES if environment.atari and not sampled else 1)

        def hear(running: int) -> None:
            bar.update(min(round(meter.hear(running), 1), episodes) - bar.n)

        yield watch_policy(policy, hear)
        bar.update(episodes - bar.n)


def find_limit(environment: Environment) -> int:
    """Steps after which an episode ends at the latest."""
    made = ENVIRONMENTS.borrow(environment, 1)
    ENVIRONMENTS.give_back(environment, made)
    return made[0][1]


def show_states(
    policy: Policy,
    environment: Environment,
    count: int,
    first_seed: int,
    name: str,
    *,
    shown: bool | None = None,
) -> States:
    """What `collect_states` gives, with a bar of the states."""
    visited = count * (STACK if environment.atari else 1)  # of images every `STACK`-th is kept
    with open_bar(visited, "state", name, shown=shown) as bar:

        def hear(running: int) -> None:
            bar.update(running)

        watched: Policy = policy if bar.disable else watch_policy(policy, hear)
        return collect_states(watched, environment, count, first_seed)


def show_calibration(policy: PolicyNet, environment: Environment, shown: bool | None = None) -> States:
    """What `calibrate` gives, with a bar of the states."""
    count = count_calibration(environment)
    return show_states(policy, environment, count, CALIBRATION_SEEDS, "calibrating", shown=shown)


def quantize_with_bar(policy: PolicyNet, scheme: Scheme, environment: Environment) -> Policy:
    """What `quantize_calibrated` gives, with a bar of the states on which it is calibrated."""
    return quantize_calibrated(policy, scheme, environment, show_calibration)
