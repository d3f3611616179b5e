"""SAC on Hopper: four seeds in one process against stable-baselines3's one, environment and acting included.

Training steps of one seed per second of CPU time, behind the random phase. `--hundred` trains for 100,000 steps, an
hour and more: four seeds of ours and one of stable-baselines3, in as many turns as there are rounds, in one process.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

CONTENDERS = ("quarl", "sb3")
SEEDS = 4
STEPS, BEGIN, HUNDRED, QUICK = 600, 200, 100_000, 8


def start_quarl(recipe: Any) -> Callable[[int], None]:
    """Training of all seeds on Hopper, by so many steps of each."""
    from quarl_bench.training.multi_seed.run import MultiSeedRun
    from quarl_bench.training.multi_seed.train import TrainingLoop

    loop = TrainingLoop(MultiSeedRun.plan(recipe, "hopperv4", range(SEEDS), Path(tempfile.mkdtemp()), None))

    def advance(steps: int) -> None:
        for _ in range(steps):
            loop.advance()

    return advance


def start_sb3(learning_starts: int) -> Callable[[int], None]:
    """Training of one seed on Hopper, by so many steps."""
    from stable_baselines3 import SAC

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.sb3.vector import make_vector

    model = SAC("MlpPolicy", make_vector(find_environment("hopperv4"), 1, 0), learning_starts=learning_starts, seed=0)

    def advance(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return advance


def time_steps(name: str, steps: int) -> float:
    """Steps of one seed per second of CPU time, of training on Hopper behind the random phase."""
    import torch

    from quarl_bench.training.multi_seed.recipe import find_recipe

    torch.set_num_threads(1)
    ours = name == CONTENDERS[0]
    advance = start_quarl(find_recipe("sac").override(learning_starts=BEGIN // 2)) if ours else start_sb3(BEGIN // 2)
    advance(BEGIN)
    begin = time.process_time()
    advance(steps)
    return (SEEDS if ours else 1) * steps / (time.process_time() - begin)


def train_hundred(rounds: int, steps: int) -> Contest:
    """Every so many steps of a training on Hopper, evaluations left out, in turns; prints how far it is."""
    import torch

    from quarl_bench.training.multi_seed.recipe import find_recipe

    torch.set_num_threads(1)
    recipe = find_recipe("sac").override(timesteps=HUNDRED)
    sides = dict(zip(CONTENDERS, (start_quarl(recipe), start_sb3(recipe.learning_starts)), strict=True))
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds):
        for name, advance in sides.items():
            begin = time.process_time()
            advance(steps)
            taken[name].append((time.process_time() - begin) / (SEEDS if name == "quarl" else 1))
        print(f"  {(index + 1) * steps:,} of {rounds * steps:,} steps", flush=True)
    seconds = {name: tuple(values) for name, values in taken.items()}
    minutes = ", ".join(f"{name} {sum(values) / 60:.1f}" for name, values in seconds.items())
    note = f"CPU minutes of one seed's {rounds * steps:,} steps: {minutes}"
    return Contest("a training on Hopper", f"CPU seconds of {steps:,} steps", seconds, (Pair(*CONTENDERS),), note=note)


def measure(name: str, options: Any) -> tuple[float]:
    """Of one contender."""
    return (time_steps(name, QUICK if options.quick else STEPS),)


def compare(turns: Turns) -> Iterator[Contest]:
    """Steps, or a whole training."""
    rounds = turns.options.rounds
    if turns.options.hundred:
        yield train_hundred(rounds, QUICK if turns.options.quick else HUNDRED // rounds)
    else:
        steps = pick(turns.take(CONTENDERS))
        yield Contest("training on Hopper", "steps of a seed per CPU second", steps, (Pair(*CONTENDERS),), rate=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--hundred", action="store_true", help="100,000 steps instead.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, add_options=add_options))
