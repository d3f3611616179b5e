"""Evaluating one policy for 100 episodes: this package against stable-baselines3's `evaluate_policy`.

The same network on the same task, deterministic, each contender in a process of its own with one torch thread, in
turns. Run it on an idle machine: `python benches/peers/evaluation.py [--task cartpole] [--rounds N]`. Prints medians of
environment steps per second of wall clock, and the ratios also per second of CPU time, which other load disturbs less,
and the peak memory of our process. Imports, model building and the making of environments are not timed. The policy is
a committed one where there is one, else an untrained network of the recipe's architecture, whose episodes have other
lengths; the output says which. Where a step is dear, peers play fewer episodes: a rate does not depend on their number.

Atari is always untrained. 100 games have about 29 different starts, and equal starts are played once: `quarl` counts
the steps of all 100, `quarl-each` plays every game.
"""

import argparse
import itertools
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

EPISODES, FEWER = 100, 32
POLICIES = Path(__file__).parents[2] / "baselines" / "policies"
CLASSIC = {"cartpole": "ppo", "mountaincarcontinuous": "ppo", "acrobot": "ppo", "pendulum": "ddpg"}
DEAR = {"hopperv4": "sac", "halfcheetahv4": "sac", "halfcheetahbullet": "ppo", "pong": "ppo"}
TASKS = CLASSIC | DEAR
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


def time_quarl(task: str, *, each: bool = False) -> tuple[float, float]:
    """Steps per second of wall clock and of CPU time of `roll_out`."""
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.evaluation import rollouts as evaluate
    from quarl_bench.evaluation.episodes import start_episodes
    from quarl_bench.evaluation.protocol import TEST_SEEDS
    from quarl_bench.policies.sources.sb3.model import extract

    model, recipe = build_model(task, 1), find_our_recipe(task)
    policy, environment = extract(model), replace(find_environment(task), time_feature=recipe.time_feature)
    seeds = range(TEST_SEEDS, TEST_SEEDS + (FEWER if each else EPISODES))
    start_episodes(environment, range(environment.side_by_side or 2)).close()
    evaluate.roll_out(policy, environment, range(2))
    with mock.patch.object(evaluate, "name_starts", (lambda *_: None) if each else evaluate.name_starts):
        return time_steps(lambda: evaluate.roll_out(policy, environment, seeds).lengths.sum().item())


def time_sb3(task: str, environments: int) -> tuple[float, float]:
    """The same of `evaluate_policy` with this many environments in one process."""
    from stable_baselines3.common.evaluation import evaluate_policy

    model, episodes = build_model(task, environments), FEWER if task in DEAR else EPISODES
    evaluate_policy(model, model.get_env(), environments)
    steps = itertools.count()  # of the agent: Monitor would count an Atari game's frames

    def play() -> int:
        evaluate_policy(model, model.get_env(), episodes, callback=lambda *_: next(steps))
        return next(steps)

    return time_steps(play)


def time_steps(play: Callable[[], int]) -> tuple[float, float]:
    """Steps per second of wall clock and of CPU time, of a function that returns the steps it took."""
    wall, busy = time.perf_counter(), time.process_time()
    steps = play()
    return steps / (time.perf_counter() - wall), steps / (time.process_time() - busy)


def compare(task: str, rounds: int) -> None:
    """Time the contenders in turns and print ratios."""
    folder = find_policy(task)
    print(f"{task}: " + (folder.name if folder else f"an UNTRAINED network of the {TASKS[task]} recipe's architecture"))
    contenders = ATARI_CONTENDERS if task == "pong" else CONTENDERS
    rates: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, values in rates.items():
            command = [sys.executable, __file__, "--task", task, "--only", name]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            values.append(tuple(map(float, output.splitlines()[-1].split())))  # Bullet says when it was built
    for name, values in rates.items():
        line = f"  {name:<10}{statistics.median(value[0] for value in values):>12,.0f} steps/s"
        if name.startswith("quarl"):
            line += f"   peak memory {max(value[2] for value in values) / 1e9:.2f} GB"
        print(line, flush=True)
    for ours in [name for name in rates if name.startswith("quarl")]:
        for theirs in [name for name in rates if not name.startswith("quarl")]:
            print(f"  {ours} / {theirs}:  " + describe_ratios(rates[ours], rates[theirs]), flush=True)


def describe_ratios(ours: list[tuple[float, ...]], theirs: list[tuple[float, ...]]) -> str:
    """Median, least and greatest ratio over the rounds, by both clocks."""
    words = []
    for clock, label in enumerate(("wall clock", "CPU time")):
        ratios = [mine[clock] / other[clock] for mine, other in zip(ours, theirs, strict=True)]
        words.append(f"{label} {statistics.median(ratios):.1f}x ({min(ratios):.1f}x .. {max(ratios):.1f}x)")
    return "   ".join(words)


def run(task: str, name: str) -> None:
    """Time one contender in this process; print its steps per second by both clocks and the peak memory in bytes."""
    ours = name.startswith("quarl")
    rates = time_quarl(task, each=name == EACH) if ours else time_sb3(task, int(name.split("-")[1]))
    print(*rates, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def main() -> None:
    """Compare on one task or on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, help="Default: all.")
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    parser.add_argument("--only", choices={*CONTENDERS, *ATARI_CONTENDERS}, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        run(options.task, options.only)
        return
    for task in [options.task] if options.task else TASKS:
        compare(task, options.rounds)


if __name__ == "__main__":
    main()
