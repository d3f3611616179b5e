"""Training PPO, A2C and DQN on Pong, or LunarLander: this package against stable-baselines3 as its users have it.

The same recipe on both sides: hyperparameters, number of environments, and what an agent sees. On Pong the peer trains
in fp32 on `make_atari_env` in a VecFrameStack. We train on our own games, with images that stay bytes in channels-last
order, and with bfloat16 convolutions, but in fp32 where the processor would emulate them. On LunarLander both train in
fp32 on Gymnasium's environment, and the peer's, by `make_vec_env`, keeps the particles of its engines too. Environment
steps per second of CPU time, which other load disturbs less than wall clock. Imports, model building and a first update
are not timed, nothing is evaluated. DQN's buffer is small, and it learns from early on.

On Pong `floor` is none of them: the frames that emulators draw, and what our network's layers compute forwards and
backwards, in the same precision, and nothing else. No training that shows them as many images takes less.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.system.counts import read_positive
from quarl_bench.system.processor import lacks_bf16

SEED = 0
TARGETS = {"ppo": 3.0, "a2c": 2.5, "dqn": 2.5}  # how many times as fast we mean to be on Pong
ON_POLICY = ("ppo", "a2c")  # what LunarLander is compared by
SHORTENED = {"dqn": {"buffer_size": 4_096, "learning_starts": 512}}
STEPS = {"pong": 4096, "lunarlander": 200_000}  # LunarLander's landers take a while to stay alive
QUICK = 64
QUARL, SB3, FLOOR = "quarl", "sb3", "floor"


@dataclass(frozen=True)
class Round:
    """A rollout and the update behind it: steps of every environment, and batches of images that are learned from."""

    steps: int
    batch: int
    batches: int
    targets: bool  # another network looks at every batch, too

    @classmethod
    def of(cls, model: Any) -> "Round":
        """That of a stable-baselines3 model."""
        if hasattr(model, "train_freq"):
            return cls(model.train_freq.frequency, model.batch_size, model.gradient_steps, targets=True)
        whole = model.n_steps * model.n_envs
        batch = getattr(model, "batch_size", whole)  # A2C learns from all at once
        return cls(model.n_steps, batch, getattr(model, "n_epochs", 1) * whole // batch, targets=False)


def find_shortened_recipe(algo: str, task: str) -> Any:
    """The committed one, whose buffer, if it has one, is small."""
    from quarl_bench.training.recipes import find_recipe

    recipe = find_recipe(algo, task)
    return replace(recipe, hyperparameters=recipe.hyperparameters | SHORTENED.get(algo, {}))


def build_quarl(algo: str, task: str) -> Any:
    """The recipe's model, as `quarl train` makes it; in fp32 where nobody would train in bfloat16."""
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import FP32
    from quarl_bench.training.sb3.models import make_model
    from quarl_bench.training.sb3.vector import make_vector

    recipe = find_shortened_recipe(algo, task)
    recipe = replace(recipe, precision=FP32) if lacks_bf16() else recipe
    return make_model(recipe, make_vector(find_environment(task), recipe.environments, SEED), SEED)


def build_sb3(algo: str, task: str) -> Any:
    """The same in fp32 on stable-baselines3's own environments."""
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import FP32
    from quarl_bench.training.sb3.models import make_model

    environment, recipe = find_environment(task), replace(find_shortened_recipe(algo, task), precision=FP32)
    if not environment.atari:
        return make_model(recipe, make_vec_env(environment.id, recipe.environments, seed=SEED), SEED, stock=True)
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    warnings.filterwarnings("ignore", ".*is out of date", DeprecationWarning)  # v4 is meant
    vector = VecFrameStack(make_atari_env(environment.id, recipe.environments, seed=SEED), 4)
    return make_model(recipe, vector, SEED, stock=True)


def prepare_learning(model: Any) -> Callable[[int], int]:
    """What trains for at least so many steps, and says how many they were; a first update is behind it."""
    model.learn(Round.of(model).steps * model.n_envs + getattr(model, "learning_starts", 0))

    def learn(steps: int) -> int:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=False)
        return int(model.num_timesteps - before)

    return learn


def prepare_floor(model: Any) -> Callable[[int], int]:
    """The same frames and passes of Pong, and nothing else."""
    import torch

    from quarl_bench.environments.atari.games import NOOP, SKIP, load_emulator
    from quarl_bench.environments.registry import find_environment

    emulators, round_ = [load_emulator(find_environment("pong").id) for _ in range(model.n_envs)], Round.of(model)
    extract = getattr(model, "q_net", model.policy).features_extractor
    seen = torch.from_numpy(model.env.reset())
    learned = seen.repeat(round_.batch // len(seen) + 1, 1, 1, 1)[: round_.batch]

    def step() -> None:
        for emulator in emulators:
            for _ in range(SKIP):
                emulator.act(NOOP)
            if emulator.game_over():
                emulator.reset_game()
        with torch.no_grad():
            extract(seen)

    def learn(steps: int) -> int:
        rounds = -(-steps // (round_.steps * len(emulators)))
        for _ in range(rounds):
            for _ in range(round_.steps):
                step()
            for _ in range(round_.batches):
                if round_.targets:
                    with torch.no_grad():
                        extract(learned)
                extract(learned).sum().backward()
        return rounds * round_.steps * len(emulators)

    learn(1)
    return learn


def measure(name: str, options: Any) -> tuple[float]:
    """Steps per second of CPU time."""
    import torch

    torch.set_num_threads(1)
    model = (build_sb3 if name == SB3 else build_quarl)(options.algo, options.task)
    learn = (prepare_floor if name == FLOOR else prepare_learning)(model)
    begin = time.process_time()
    steps = learn(options.steps)
    return (steps / (time.process_time() - begin),)


def compare(turns: Turns) -> Iterator[Contest]:
    """With one algorithm or with all."""
    task = turns.options.task
    steps = turns.options.steps or (QUICK if turns.options.quick else STEPS[task])
    pong = task == "pong"
    for algo in (turns.options.algo,) if turns.options.algo else TARGETS if pong else ON_POLICY:
        names = (QUARL, SB3, FLOOR) if pong else (QUARL, SB3)
        taken = turns.take(names, "--algo", algo, "--task", task, "--steps", steps)
        pairs = (Pair(QUARL, SB3, TARGETS[algo]), Pair(FLOOR, SB3)) if pong else (Pair(QUARL, SB3),)
        note = f"{steps:,} steps{', all in fp32' if not pong or lacks_bf16() else ''}"
        yield Contest(f"{algo} on {task}", "steps per CPU second", pick(taken), pairs, rate=True, note=note)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--algo", choices=TARGETS, help="Default: all.")
    parser.add_argument("--task", choices=STEPS, default="pong", help="Default: pong.")
    told = ", ".join(f"{steps} on {task}" for task, steps in STEPS.items())
    parser.add_argument("--steps", type=read_positive, help=f"Timed steps per round. Default: {told}.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, add_options=add_options))
