"""Training PPO and A2C on Pong or LunarLander: this package against stable-baselines3 as its users have it.

The same recipe on both sides: hyperparameters, number of environments, and what an agent sees. On Pong the peer trains
in fp32 on `make_atari_env` in a VecFrameStack; we train on our own games with bfloat16 convolutions. On LunarLander
both train in fp32 on Gymnasium's environment; the peer's, by `make_vec_env`, keeps the particles of its engines too.
Each contender has a process of its own with one torch thread, in turns: `python benches/peers/training.py [--task
lunarlander] [--algo ppo] [--rounds N] [--steps N]`. Prints medians of environment steps per second of CPU time, which
other load disturbs less than wall clock, and of their ratio within a round. Imports, model building and a first update
are not timed, nothing is evaluated.
"""

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from typing import Any

SEED = 0
TARGETS = {"ppo": 2.2, "a2c": 1.5}  # how many times as fast we mean to be on Pong
STEPS = {"pong": 8192, "lunarlander": 200_000}  # LunarLander's landers take a while to stay alive
CONTENDERS = ("quarl", "sb3")


def build_quarl(algo: str, task: str) -> Any:
    """The recipe's model, as `quarl train` makes it."""
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import find_recipe
    from quarl_bench.training.sb3.models import make_model
    from quarl_bench.training.sb3.vector import make_vector

    recipe = find_recipe(algo, task)
    return make_model(recipe, make_vector(find_environment(task), recipe.environments, SEED), SEED)


def build_sb3(algo: str, task: str) -> Any:
    """The same in fp32 on stable-baselines3's own environments."""
    from dataclasses import replace

    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import find_recipe
    from quarl_bench.training.sb3.models import make_model

    environment, recipe = find_environment(task), replace(find_recipe(algo, task), precision="fp32")
    if not environment.atari:
        return make_model(recipe, make_vec_env(environment.id, recipe.environments, seed=SEED), SEED)
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # v4 is meant
    return make_model(recipe, VecFrameStack(make_atari_env(environment.id, recipe.environments, seed=SEED), 4), SEED)


def time_training(model: Any, steps: int) -> tuple[float, float]:
    """Steps per second of wall clock and of CPU time, behind a first update."""
    import torch

    torch.set_num_threads(1)
    model.learn(model.n_steps * model.n_envs)
    before = model.num_timesteps
    wall, busy = time.perf_counter(), time.process_time()
    model.learn(steps, reset_num_timesteps=False)
    taken = model.num_timesteps - before
    return taken / (time.perf_counter() - wall), taken / (time.process_time() - busy)


def compare(algo: str, task: str, rounds: int, steps: int) -> None:
    """Time the contenders in turns and print ratios."""
    rates: dict[str, list[tuple[float, ...]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, values in rates.items():
            command = [sys.executable, __file__, "--algo", algo, "--task", task, "--steps", str(steps), "--only", name]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            values.append(tuple(map(float, output.split())))
    print(f"{algo} on {task}, {rounds} rounds of {steps:,} steps")
    for name, values in rates.items():
        wall, busy = (statistics.median(value[clock] for value in values) for clock in range(2))
        print(f"  {name:<6}{busy:>8,.0f} steps per CPU second {wall:>8,.0f} steps/s of wall clock")
    ratios = [ours[1] / theirs[1] for ours, theirs in zip(*rates.values(), strict=True)]
    spread = f"{min(ratios):.2f}x .. {max(ratios):.2f}x"
    target = f", target {TARGETS[algo]}x" if task == "pong" else ""
    print(f"  ratio {statistics.median(ratios):.2f}x ({spread}){target}", flush=True)


def main() -> None:
    """Compare with one algorithm or with both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algo", choices=TARGETS, help="Default: all.")
    parser.add_argument("--task", choices=STEPS, default="pong", help="Default: pong.")
    parser.add_argument("--rounds", type=int, default=3, help="Default: 3.")
    parser.add_argument(
        "--steps", type=int, help="Timed steps per round. Default: 8192 on pong, 200000 on lunarlander."
    )
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        build = build_quarl if options.only == "quarl" else build_sb3
        print(*time_training(build(options.algo, options.task), options.steps))
        return
    for algo in [options.algo] if options.algo else TARGETS:
        compare(algo, options.task, options.rounds, options.steps or STEPS[options.task])


if __name__ == "__main__":
    main()
