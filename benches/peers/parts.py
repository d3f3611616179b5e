"""Where the time of an evaluated step goes: in the simulator, in the network, in everything else.

Nobody who evaluates can do without a simulator's step and a forward pass: together they are a floor. Policies and tasks
are those of `evaluation`, in this package alone, every episode played, in environments that are made before. Steps and
passes are timed where they are made; what looking at the clock takes is timed, too, and taken off.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any
from unittest import mock

from evaluation import (
    DEAR,
    EPISODES,
    GAMES,
    QUICK,
    build_model,
    find_our_recipe,
    find_policy,
    make_environments,
    play_each_game,
)
from turns import Script, Turns, main

from quarl_bench.judging.times.contest import Contest

QUICK_TASKS = ("hopperv4",)
LOOKS = 20_000  # by which the clock itself is timed
# A client of PyBullet's names its world to functions that are built in, and to no others: its caller is timed.
SIMULATORS = {"mujoco": "mujoco:mj_step", "bullet": "pybullet_envs_gymnasium.scene_abstract:World.step"}
COLUMNS = ("simulator", "network", "everything else", "together")


class Clock:
    """Seconds of CPU time in the calls that it has wrapped, and how many there were."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            begin = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.process_time() - begin

        return timed


def weigh_clock() -> tuple[float, float]:
    """Seconds of CPU time that a look at the clock adds to a call: to what is timed, and in all."""
    clock = Clock()
    timed = clock.wrap(int)
    begin = time.process_time()
    for _ in range(LOOKS):
        timed()
    return clock.seconds / LOOKS, (time.process_time() - begin) / LOOKS


class TimedEmulator:
    """An emulator whose frames are timed."""

    def __init__(self, emulator: Any, clock: Clock) -> None:
        self._emulator, self.act = emulator, clock.wrap(emulator.act)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._emulator, name)


def time_simulator(environment: Any, clock: Clock) -> Any:
    """A patch that lets `clock` time what moves the world of `environment`."""
    from quarl_bench.environments.atari import games as atari

    if environment.atari:
        load = atari.load_emulator
        return mock.patch.object(atari, "load_emulator", lambda id_: TimedEmulator(load(id_), clock))
    place = SIMULATORS[environment.extra]
    return mock.patch(place.replace(":", "."), clock.wrap(resolve_name(place)))


def measure(name: str, options: Any) -> tuple[float, ...]:
    """Microseconds of CPU time a step, one for each of `COLUMNS`."""
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.evaluation import rollouts
    from quarl_bench.evaluation.protocol import TEST_SEEDS
    from quarl_bench.policies.sources.sb3.model import extract
    from quarl_bench.quantization.net import Net

    policy = extract(build_model(name, 1))
    environment = replace(find_environment(name), time_feature=find_our_recipe(name).time_feature)
    simulator, network = Clock(), Clock()
    episodes = QUICK if options.quick else GAMES if environment.atari else EPISODES
    seeds = range(TEST_SEEDS, TEST_SEEDS + episodes)
    with ExitStack() as patches:
        patches.enter_context(time_simulator(environment, simulator))
        make_environments(environment, episodes)
        patches.enter_context(mock.patch.object(Net, "forward", network.wrap(Net.forward)))
        patches.enter_context(play_each_game())
        rollouts.roll_out(policy, environment, range(2))
        simulator.seconds, simulator.calls, network.seconds, network.calls = 0.0, 0, 0.0, 0
        begin = time.process_time()
        steps = int(rollouts.roll_out(policy, environment, seeds).lengths.sum())
        together = time.process_time() - begin
    inside, whole = weigh_clock()
    parts = [clock.seconds - clock.calls * inside for clock in (simulator, network)]
    together -= (simulator.calls + network.calls) * whole
    return tuple(1e6 * part / steps for part in (*parts, together - sum(parts), together))


def compare(turns: Turns) -> Iterator[Contest]:
    """A contest without rivals for each task."""
    for task in QUICK_TASKS if turns.options.quick else DEAR:
        (taken,) = turns.take((task,)).values()
        folder = find_policy(task)
        note = folder.name if folder else "an untrained network of the recipe's architecture"
        rounds = dict(zip(COLUMNS, zip(*taken, strict=True), strict=True))
        yield Contest(task, "us of CPU time a step", rounds, note=note)


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure))
