"""SAC on Hopper: four seeds in one process against stable-baselines3's one, environment and acting included.

Training steps of one seed per second of CPU time, behind the random phase.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

CONTENDERS = ("quarl", "sb3")
SEEDS = 4
STEPS, BEGIN, QUICK = 600, 200, 8


def start_quarl(recipe: Any, folder: Path) -> Callable[[int], None]:
    """What goes on by so many steps of each seed: training of all seeds on Hopper, whose files lie in `folder`."""
    from quarl_bench.training.multi_seed.run import MultiSeedRun
    from quarl_bench.training.multi_seed.train import TrainingLoop

    run = MultiSeedRun.plan(recipe, "hopperv4", range(SEEDS), folder, None)
    loop = TrainingLoop(run, None)

    def advance(steps: int) -> None:
        for _ in range(steps):
            loop.advance()

    return advance


def start_sb3(learning_starts: int) -> Callable[[int], None]:
    """The same of the one seed that stable-baselines3 trains."""
    from stable_baselines3 import SAC

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.sb3.vector import make_vector

    environment = make_vector(find_environment("hopperv4"), 1, 0)
    model = SAC("MlpPolicy", environment, learning_starts=learning_starts, seed=0)

    def advance(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    return advance


def time_steps(name: str, steps: int) -> float:
    """Steps of one seed per second of CPU time, of training on Hopper behind the random phase."""
    import torch

    from quarl_bench.training.multi_seed.recipe import find_recipe

    torch.set_num_threads(1)
    ours = name == CONTENDERS[0]
    recipe = find_recipe("sac").override(learning_starts=BEGIN // 2)
    with tempfile.TemporaryDirectory() as folder:
        advance = start_quarl(recipe, Path(folder)) if ours else start_sb3(BEGIN // 2)
        advance(BEGIN)
        begin = time.process_time()
        advance(steps)
        return (SEEDS if ours else 1) * steps / (time.process_time() - begin)


def measure(name: str, options: Any) -> tuple[float]:
    """Of one contender."""
    return (time_steps(name, QUICK if options.quick else STEPS),)


def compare(turns: Turns) -> Iterator[Contest]:
    """Steps of each."""
    steps = pick(turns.take(CONTENDERS))
    yield Contest("training on Hopper", "steps of a seed per CPU second", steps, (Pair(*CONTENDERS),), rate=True)


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure))
