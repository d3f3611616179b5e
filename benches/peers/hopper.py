"""SAC on Hopper: four seeds in one process against stable-baselines3's one, environment and acting included.

Training steps of one seed per second of CPU time, behind the random phase. `--hundred` trains for 100,000 steps, an
hour and more: four seeds of ours and one of stable-baselines3, in as many turns as there are rounds, in one process.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.system.atomic import new_folder

CONTENDERS = ("quarl", "sb3")
SEEDS = 4
STEPS, BEGIN, HUNDRED, QUICK = 600, 200, 100_000, 8


@dataclass(frozen=True)
class Training:
    """One that goes on by so many steps of each seed; `count` says how many it has made, `save` keeps it."""

    advance: Callable[[int], None]
    count: Callable[[], int]
    save: Callable[[], None]


def start_quarl(recipe: Any, folder: Path) -> Training:
    """Training of all seeds on Hopper, from where `folder` has it."""
    from quarl_bench.training.multi_seed.run import MultiSeedRun
    from quarl_bench.training.multi_seed.train import TrainingLoop

    run = MultiSeedRun.plan(recipe, "hopperv4", range(SEEDS), folder, None)
    loop = TrainingLoop(run, run.read_checkpoint() if run.unfinished else None)

    def advance(steps: int) -> None:
        for _ in range(steps):
            loop.advance()

    return Training(advance, lambda: loop.steps, loop.save)


def start_sb3(learning_starts: int, folder: Path) -> Training:
    """Training of one seed on Hopper, from where `folder` has it."""
    from stable_baselines3 import SAC

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.sb3.vector import make_vector

    kept, environment = folder / "sb3", make_vector(find_environment("hopperv4"), 1, 0)
    if kept.is_dir():
        model = SAC.load(kept / "model.zip", env=environment)
        model.load_replay_buffer(kept / "replay.pkl")
    else:
        model = SAC("MlpPolicy", environment, learning_starts=learning_starts, seed=0)

    def advance(steps: int) -> None:
        model.learn(steps, reset_num_timesteps=False)

    def save() -> None:
        with new_folder(kept, "model.zip") as work:
            model.save(work / "model.zip")
            model.save_replay_buffer(work / "replay.pkl")

    return Training(advance, lambda: model.num_timesteps, save)


def time_steps(name: str, steps: int) -> float:
    """Steps of one seed per second of CPU time, of training on Hopper behind the random phase."""
    import torch

    from quarl_bench.training.multi_seed.recipe import find_recipe

    torch.set_num_threads(1)
    ours, folder = name == CONTENDERS[0], Path(tempfile.mkdtemp())
    recipe = find_recipe("sac").override(learning_starts=BEGIN // 2)
    training = start_quarl(recipe, folder) if ours else start_sb3(BEGIN // 2, folder)
    training.advance(BEGIN)
    begin = time.process_time()
    training.advance(steps)
    return (SEEDS if ours else 1) * steps / (time.process_time() - begin)


def train_hundred(turns: Turns, steps: int) -> Contest:
    """Every so many steps of a training on Hopper, evaluations left out, in turns; prints how far it is.

    Both trainings are kept behind every round, so that a killed process loses the round that it was in.
    """
    import torch

    from quarl_bench.training.multi_seed.recipe import find_recipe

    torch.set_num_threads(1)
    rounds, folder = turns.options.rounds, turns.journal.make_folder()
    recipe = find_recipe("sac").override(timesteps=HUNDRED)
    sides = dict(zip(CONTENDERS, (start_quarl(recipe, folder), start_sb3(recipe.learning_starts, folder)), strict=True))

    def advance(training: Training, index: int, seeds: int) -> float:
        if behind := index * steps - training.count():  # it was killed between a number and its checkpoint
            training.advance(behind)
        begin = time.process_time()
        training.advance(steps)
        return (time.process_time() - begin) / seeds

    taken: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds):
        for name, training in sides.items():
            seeds = SEEDS if name == CONTENDERS[0] else 1
            taken[name].append(turns.journal.recall(partial(advance, training, index, seeds), "hundred", name, index))
            if training.count() == (index + 1) * steps:
                training.save()
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
        yield train_hundred(turns, QUICK if turns.options.quick else HUNDRED // rounds)
    else:
        steps = pick(turns.take(CONTENDERS))
        yield Contest("training on Hopper", "steps of a seed per CPU second", steps, (Pair(*CONTENDERS),), rate=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--hundred", action="store_true", help="100,000 steps instead.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, add_options=add_options))
