"""The states on which an integer form is calibrated: the policy visits them itself, on seeds that score nothing."""

import itertools
from collections.abc import Callable
from contextlib import closing

import numpy as np

from quarl_bench.environments.atari.games import STACK
from quarl_bench.environments.registry import Environment
from quarl_bench.evaluation.batches.episodes import find_distinct, name_starts
from quarl_bench.evaluation.protocol import CALIBRATION_SEEDS
from quarl_bench.evaluation.rollouts import visit
from quarl_bench.policies.policy import Observations, Policy, PolicyNet, States, Visited, deployable
from quarl_bench.quantization.scheme import Scheme

STATES = 10_000  # visited by the fp32 policy itself, over several episodes
IMAGES = 2_000  # the same for Atari: four episodes, or the beginnings of them
BATCH = 16  # episodes that are played for observations at a time
IMAGE_BATCH = 4  # the same for images, of which every `STACK`-th is kept: the frames between are in its stack


def quantize_calibrated(
    policy: PolicyNet,
    scheme: Scheme,
    environment: Environment,
    collect: Callable[[PolicyNet, Environment], States] | None = None,
) -> Policy:
    """The form that leaves a simulation, integers for int<n>, on the states of `calibrate` where the scheme has ranges.

    `collect` takes the place of `calibrate`, for whoever shows how far it is. QuantizationError where the net has no
    form in the scheme.
    """
    observations = (collect or calibrate)(policy, environment) if scheme.integer and scheme.calibrated else None
    return deployable(policy.quantize(scheme, observations))


def calibrate(policy: Policy, environment: Environment) -> States:
    """The states (n, ...) on which every integer form of `policy` is calibrated."""
    return collect_states(policy, environment, count_calibration(environment), CALIBRATION_SEEDS)


def count_calibration(environment: Environment) -> int:
    """How many states calibrate a policy here."""
    return IMAGES if environment.atari else STATES


def collect_observations(policy: Policy, environment: Environment, count: int, first_seed: int) -> Observations:
    """What `collect_states` collects, without the state of a recurrent policy."""
    states = collect_states(policy, environment, count, first_seed)
    return states.observations if isinstance(states, Visited) else states


def collect_states(policy: Policy, environment: Environment, count: int, first_seed: int) -> States:
    """At least one and at most `count` states that `policy` visits, in order, from seeds `first_seed` on."""
    batch, every = (IMAGE_BATCH, STACK) if environment.atari else (BATCH, 1)
    kept: list[States] = []
    seed, total = first_seed, 0
    while total < count:
        seeds = range(seed, seed + batch)
        played, _ = find_distinct(name_starts(environment, seeds), seeds)
        with closing(visit(policy, environment, played)) as visited:
            for observations in itertools.islice(visited, 0, None, every):
                kept.append(observations)
                total += len(observations)
                if total >= count:
                    break
        seed += batch
    recurrent = [one for one in kept if isinstance(one, Visited)]
    states: States = Visited.join(recurrent) if recurrent else np.concatenate([*map(np.asarray, kept)])
    return states[:count]
