"""Training PPO and A2C on Pong or LunarLander: this package against stable-baselines3 as its users have it.

The same recipe on both sides: hyperparameters, number of environments, and what an agent sees. On Pong the peer trains
in fp32 on `make_atari_env` in a VecFrameStack. We train on our own games, with images that stay bytes in channels-last
order, and with bfloat16 convolutions, but in fp32 where the processor would emulate them. On LunarLander both train in
fp32 on Gymnasium's environment, and the peer's, by `make_vec_env`, keeps the particles of its engines too. Environment
steps per second of CPU time, which other load disturbs less than wall clock. Imports, model building and a first update
are not timed, nothing is evaluated.
"""

import argparse
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.system.counts import read_positive
from quarl_bench.system.processor import lacks_bf16

SEED = 0
TARGETS = {"ppo": 2.2, "a2c": 1.5}  # how many times as fast we mean to be on Pong
STEPS = {"pong": 4096, "lunarlander": 200_000}  # LunarLander's landers take a while to stay alive
QUICK = 64
CONTENDERS = ("quarl", "sb3")


def build_quarl(algo: str, task: str) -> Any:
    """The recipe's model, as `quarl train` makes it; in fp32 where nobody would train in bfloat16."""
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import FP32, find_recipe
    from quarl_bench.training.sb3.models import make_model
    from quarl_bench.training.sb3.vector import make_vector

    recipe = find_recipe(algo, task)
    recipe = replace(recipe, precision=FP32) if lacks_bf16() else recipe
    return make_model(recipe, make_vector(find_environment(task), recipe.environments, SEED), SEED)


def build_sb3(algo: str, task: str) -> Any:
    """The same in fp32 on stable-baselines3's own environments."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import FP32, find_recipe
    from quarl_bench.training.sb3.models import make_model

    environment, recipe = find_environment(task), replace(find_recipe(algo, task), precision=FP32)
    if not environment.atari:
        return make_model(recipe, make_vec_env(environment.id, recipe.environments, seed=SEED), SEED, stock=True)
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # v4 is meant
    vector = VecFrameStack(make_atari_env(environment.id, recipe.environments, seed=SEED), 4)
    return make_model(recipe, vector, SEED, stock=True)


def measure(name: str, options: Any) -> tuple[float]:
    """Steps per second of CPU time, behind a first update."""
    import torch

    torch.set_num_threads(1)
    model = (build_quarl if name == "quarl" else build_sb3)(options.algo, options.task)
    model.learn(model.n_steps * model.n_envs)
    before, begin = model.num_timesteps, time.process_time()
    model.learn(options.steps, reset_num_timesteps=False)
    return ((model.num_timesteps - before) / (time.process_time() - begin),)


def compare(turns: Turns) -> Iterator[Contest]:
    """With one algorithm or with both."""
    task = turns.options.task
    steps = turns.options.steps or (QUICK if turns.options.quick else STEPS[task])
    for algo in (turns.options.algo,) if turns.options.algo else TARGETS:
        taken = turns.take(CONTENDERS, "--algo", algo, "--task", task, "--steps", steps)
        pair = Pair(*CONTENDERS, target=TARGETS[algo] if task == "pong" else None)
        note = f"{steps:,} steps{', all in fp32' if task != 'pong' or lacks_bf16() else ''}"
        yield Contest(f"{algo} on {task}", "steps per CPU second", pick(taken), (pair,), rate=True, note=note)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--algo", choices=TARGETS, help="Default: all.")
    parser.add_argument("--task", choices=STEPS, default="pong", help="Default: pong.")
    told = ", ".join(f"{steps} on {task}" for task, steps in STEPS.items())
    parser.add_argument("--steps", type=read_positive, help=f"Timed steps per round. Default: {told}.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, add_options=add_options))
