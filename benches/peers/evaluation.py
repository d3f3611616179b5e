"""Evaluating one policy for 100 episodes: this package against stable-baselines3's `evaluate_policy`.

The same network on the same task, deterministic, each contender in a process of its own with one torch thread, in
turns. Run it on an idle machine: `python benches/peers/evaluation.py [--task cartpole] [--rounds N]`. Prints medians of
environment steps per second of wall clock, and the ratios also per second of CPU time, which other load disturbs less.
Imports and model building are not timed. The policy is a committed one where there is one, else an untrained network of
the recipe's architecture, whose episodes have other lengths; the output says which.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EPISODES = 100
POLICIES = Path(__file__).parents[2] / "baselines" / "policies"
TASKS = {"cartpole": "ppo", "mountaincarcontinuous": "ppo", "acrobot": "ppo", "pendulum": "ddpg"}
CONTENDERS = ("quarl", "sb3-1", "sb3-8")


def find_policy(task: str) -> Path | None:
    """The committed policy of a task: of the algorithm named above, else of any."""
    usual = POLICIES / f"{TASKS[task]}-{task}-seed0"
    return usual if usual.exists() else min(POLICIES.glob(f"*-{task}-seed0"), default=None)


def build_model(task: str, environments: int) -> Any:
    """The recipe's stable-baselines3 model, with the committed policy's weights and statistics if there are any."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    from quarl_bench.policy.files import load_policy
    from quarl_bench.rl.environments import find_environment
    from quarl_bench.rl.recipes import find_recipe
    from quarl_bench.rl.train import ALGORITHMS

    torch.set_num_threads(1)
    folder = find_policy(task)
    algo = TASKS[task] if folder is None else folder.name.split("-")[0]
    recipe = find_recipe(algo, task)
    vector = make_vec_env(find_environment(task).id, environments, seed=0)
    if recipe.normalize:
        vector = VecNormalize(vector, training=False, norm_reward=False)
    shape = {key: value for key, value in recipe.hyperparameters.items() if key in ("policy_kwargs", "use_sde")}
    model = ALGORITHMS[algo](recipe.policy, vector, seed=0, device="cpu", **shape)
    if folder is not None:
        policy = load_policy(folder).policy
        modules = [module for module in list_modules(model.policy) if isinstance(module, torch.nn.Linear)]
        for module, layer in zip(modules, policy.net.layers, strict=True):
            module.load_state_dict({"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)})
        if policy.transform.normalization is not None:
            vector.obs_rms.mean = policy.transform.normalization.mean
            vector.obs_rms.var = policy.transform.normalization.variance
    return model


def list_modules(policy: Any) -> list[Any]:
    """What a model's actions pass through, for DQN, for DDPG, and for A2C and PPO."""
    if hasattr(policy, "q_net"):
        return list(policy.q_net.q_net)
    if hasattr(policy, "actor"):
        return list(policy.actor.mu)
    return [*policy.mlp_extractor.policy_net, policy.action_net]


def time_quarl(task: str) -> tuple[float, float]:
    """Steps per second of wall clock and of CPU time of `roll_out`."""
    from quarl_bench.policy.sb3 import extract
    from quarl_bench.rl.environments import find_environment
    from quarl_bench.rl.evaluate import TEST_SEEDS, roll_out

    policy, environment = extract(build_model(task, 1)), find_environment(task)
    roll_out(policy, environment, range(2))
    return time_steps(
        lambda: roll_out(policy, environment, range(TEST_SEEDS, TEST_SEEDS + EPISODES)).lengths.sum().item()
    )


def time_sb3(task: str, environments: int) -> tuple[float, float]:
    """The same of `evaluate_policy` with this many environments in one process."""
    from stable_baselines3.common.evaluation import evaluate_policy

    model = build_model(task, environments)
    evaluate_policy(model, model.get_env(), environments)
    return time_steps(lambda: sum(evaluate_policy(model, model.get_env(), EPISODES, return_episode_rewards=True)[1]))


def time_steps(play: Callable[[], int]) -> tuple[float, float]:
    """Steps per second of wall clock and of CPU time, of a function that returns the steps it took."""
    wall, busy = time.perf_counter(), time.process_time()
    steps = play()
    return steps / (time.perf_counter() - wall), steps / (time.process_time() - busy)


def compare(task: str, rounds: int) -> None:
    """Time the contenders in turns and print ratios."""
    folder = find_policy(task)
    print(f"{task}: " + (folder.name if folder else f"an UNTRAINED network of the {TASKS[task]} recipe's architecture"))
    rates: dict[str, list[tuple[float, ...]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name, values in rates.items():
            command = [sys.executable, __file__, "--task", task, "--only", name]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            values.append(tuple(map(float, output.split())))
    for name, values in rates.items():
        line = f"  {name:<6}{statistics.median(wall for wall, _ in values):>12,.0f} steps/s"
        if name != "quarl":
            for clock, label in enumerate(("wall clock", "CPU time")):
                ratios = [ours[clock] / theirs[clock] for ours, theirs in zip(rates["quarl"], values, strict=True)]
                line += f"   {label} {statistics.median(ratios):.1f}x ({min(ratios):.1f}x .. {max(ratios):.1f}x)"
        print(line, flush=True)


def main() -> None:
    """Compare on one task or on all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, help="Default: all.")
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        name = options.only
        print(*(time_quarl(options.task) if name == "quarl" else time_sb3(options.task, int(name.split("-")[1]))))
        return
    for task in [options.task] if options.task else TASKS:
        compare(task, options.rounds)


if __name__ == "__main__":
    main()
