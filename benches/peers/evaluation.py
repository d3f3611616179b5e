"""Evaluating one policy for 100 episodes: this package against stable-baselines3's `evaluate_policy`.

The same network on the same task, deterministic: environment steps per second of CPU time, which other load disturbs
less than wall clock. Imports, model building and the making of environments are not timed. The policy is a committed
one where there is one, else an untrained network of the recipe's architecture, whose episodes have other lengths; the
output says which. Peers play fewer episodes, and where a step is dear the fewest: a rate does not depend on that. Peak
memory is that of a process.

Atari is always untrained. 100 games have about 29 different starts, and equal starts are played once: `quarl` counts
the steps of all 100, `quarl-each` plays each of 32 games, and asks the network at every step of each.
"""

import argparse
import itertools
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

EPISODES, FEWER, FEWEST, QUICK = 100, 16, 8, 2
GAMES = 32  # of Atari, where each is played: a network takes less time for each of many images
POLICIES = Path(__file__).parents[2] / "baselines" / "policies"
CLASSIC = {"cartpole": "ppo", "mountaincarcontinuous": "ppo", "acrobot": "ppo", "pendulum": "ddpg"}
DEAR = {"hopperv4": "sac", "halfcheetahv4": "sac", "halfcheetahbullet": "ppo", "pong": "ppo"}
TASKS = CLASSIC | DEAR
QUICK_TASKS = ("cartpole", "hopperv4")
EACH = "quarl-each"
CONTENDERS = ("quarl", "sb3-1", "sb3-8")
ATARI_CONTENDERS = ("quarl", EACH, "sb3-8")


def find_policy(task: str) -> Path | None:
    """The committed policy of a task: of the algorithm named above, else of any; None where there is none."""
    if task == "pong":
        return None
    usual = POLICIES / f"{TASKS[task]}-{task}-seed0"
    return usual if usual.exists() else min(POLICIES.glob(f"*-{task}-seed0"), default=None)


def find_our_recipe(task: str) -> Any:
    """How the committed policy was trained, or would be."""
    from quarl_bench.training.recipes import find_recipe

    folder = find_policy(task)
    return find_recipe(TASKS[task] if folder is None else folder.name.split("-")[0], task)


def build_model(task: str, environments: int) -> Any:
    """The recipe's stable-baselines3 model, with the committed policy's weights and statistics if there are any."""
    import torch
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.vec_env import VecNormalize

    from quarl_bench.policies.storage.fp32 import load_policy
    from quarl_bench.quantization.activations import ELEMENTWISE, Activation
    from quarl_bench.training.sb3.models import load_class

    torch.set_num_threads(1)
    folder, recipe = find_policy(task), find_our_recipe(task)
    vector = make_peer(task, environments, time_feature=recipe.time_feature)
    if recipe.normalize:
        vector = VecNormalize(vector, training=False, norm_reward=False)
    shape = {key: value for key, value in recipe.hyperparameters.items() if key in ("policy_kwargs", "use_sde")}
    kwargs = shape.get("policy_kwargs", {})
    if "activation_fn" in kwargs:
        shape["policy_kwargs"] = kwargs | {"activation_fn": ELEMENTWISE[Activation(kwargs["activation_fn"])].module}
    made = load_class(recipe.algo)
    if issubclass(made, OffPolicyAlgorithm):
        shape["buffer_size"] = 1
    model = made(recipe.policy, vector, seed=0, device="cpu", **shape)
    if folder is not None:
        policy = load_policy(folder).policy
        modules = [module for module in list_modules(model.policy) if isinstance(module, torch.nn.Linear)]
        for module, layer in zip(modules, policy.net.layers, strict=True):
            module.load_state_dict({"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)})
        if policy.transform.normalization is not None:
            vector.obs_rms.mean = policy.transform.normalization.mean
            vector.obs_rms.var = policy.transform.normalization.variance
    return model


def make_peer(task: str, environments: int, *, time_feature: bool) -> Any:
    """The environments as stable-baselines3 makes them."""
    import gymnasium
    from sb3_contrib.common.wrappers import TimeFeatureWrapper
    from stable_baselines3.common.env_util import make_atari_env, make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    from quarl_bench.environments.registry import find_environment, make_environment

    gymnasium.logger.min_level = gymnasium.logger.ERROR  # v4 is meant
    environment = find_environment(task)
    make_environment(environment)[0].close()  # registers its id
    if environment.extra == "mujoco":
        import mujoco

        mujoco.set_mju_user_warning(lambda _: None)  # it would also write them into a file here
    if environment.atari:
        import ale_py  # noqa: F401 (registers)

        return VecFrameStack(make_atari_env(environment.id, environments, seed=0), 4)
    return make_vec_env(environment.id, environments, 0, wrapper_class=TimeFeatureWrapper if time_feature else None)


def list_modules(policy: Any) -> list[Any]:
    """What a model's actions pass through, for DQN, for SAC, for DDPG, and for A2C and PPO."""
    if hasattr(policy, "q_net"):
        return list(policy.q_net.q_net)
    if hasattr(policy, "actor") and hasattr(policy.actor, "latent_pi"):
        return [*policy.actor.latent_pi, policy.actor.mu]
    if hasattr(policy, "actor"):
        return list(policy.actor.mu)
    return [*policy.mlp_extractor.policy_net, policy.action_net]


def name_nothing(*_: Any) -> None:
    """What is without a name is like nothing else."""


@contextmanager
def play_each_game() -> Iterator[None]:
    """Also those of Atari that begin alike, and those that meet; a network is asked about known images again."""
    from quarl_bench.evaluation import acting, rollouts
    from quarl_bench.evaluation.batches.games import GameEpisodes

    with (
        mock.patch.object(rollouts, "name_starts", name_nothing),
        mock.patch.object(GameEpisodes, "name_state", name_nothing),
        mock.patch.object(acting, "Remembered", acting.Deterministic),
    ):
        yield


def make_environments(environment: Any, episodes: int) -> None:
    """Make what so many episodes need, which then waits for them: a rival's environments are made before it is timed.

    A ROM takes as long to load as four hundred steps.
    """
    from quarl_bench.environments.atari.games import NOOPS
    from quarl_bench.evaluation.batches.episodes import start_episodes

    count = environment.side_by_side or (min(episodes, max(GAMES, NOOPS)) if environment.atari else 2)
    start_episodes(environment, range(count)).close()


def time_quarl(task: str, episodes: int, *, each: bool = False) -> float:
    """Steps per second of CPU time of `roll_out`."""
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.evaluation import rollouts as evaluate
    from quarl_bench.evaluation.protocol import TEST_SEEDS
    from quarl_bench.policies.sources.sb3.model import extract

    model, recipe = build_model(task, 1), find_our_recipe(task)
    policy, environment = extract(model), replace(find_environment(task), time_feature=recipe.time_feature)
    seeds = range(TEST_SEEDS, TEST_SEEDS + episodes)
    make_environments(environment, episodes)
    evaluate.roll_out(policy, environment, range(2))
    with play_each_game() if each else nullcontext():
        return time_steps(lambda: int(evaluate.roll_out(policy, environment, seeds).lengths.sum()))


def time_sb3(task: str, environments: int, episodes: int) -> float:
    """The same of `evaluate_policy` with this many environments in one process."""
    from stable_baselines3.common.evaluation import evaluate_policy

    model = build_model(task, environments)
    evaluate_policy(model, model.get_env(), 1)
    steps = itertools.count()  # of the agent: Monitor would count an Atari game's frames

    def count(*_: Any) -> None:
        next(steps)

    def play() -> int:
        evaluate_policy(model, model.get_env(), episodes, callback=count)
        return next(steps)

    return time_steps(play)


def time_steps(play: Callable[[], int]) -> float:
    """Steps per second of CPU time, of a function that returns the steps it took."""
    begin = time.process_time()
    steps = play()
    return steps / (time.process_time() - begin)


def measure(name: str, options: Any) -> tuple[float, float]:
    """One contender's steps per second, and its peak memory in MB."""
    fewer = QUICK if options.quick else FEWEST if options.task in DEAR else FEWER
    if name.startswith("quarl"):
        all_of_them = QUICK if options.quick else EPISODES
        games = QUICK if options.quick else GAMES
        rate = time_quarl(options.task, games if name == EACH else all_of_them, each=name == EACH)
    else:
        rate = time_sb3(options.task, int(name.split("-")[1]), fewer)
    return rate, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def compare(turns: Turns) -> Iterator[Contest]:
    """Of one task or all, the rates and the memory."""
    tasks = QUICK_TASKS if turns.options.quick else tuple(TASKS)
    for task in (turns.options.task,) if turns.options.task else tasks:
        contenders = ATARI_CONTENDERS if task == "pong" else CONTENDERS
        taken, folder = turns.take(contenders, "--task", task), find_policy(task)
        note = folder.name if folder else f"an untrained network of the {TASKS[task]} recipe's architecture"
        ours, theirs = ([name for name in contenders if name.startswith(kind)] for kind in ("quarl", "sb3"))
        pairs = tuple(itertools.starmap(Pair, itertools.product(ours, theirs)))
        yield Contest(task, "steps per CPU second", pick(taken), pairs, rate=True, note=note)
        yield Contest(f"{task}, peak memory", "MB", pick(taken, 1), note=note)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--task", choices=TASKS, help="Default: all.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, add_options=add_options))
