"""Evaluating one CartPole policy for 100 episodes: this package against stable-baselines3's `evaluate_policy`.

The same weights, deterministic, each contender in a process of its own with one torch thread, in turns. Run it on an
idle machine: `python benches/peers/evaluation.py [--rounds N]`. Prints medians and ratios of environment steps per
second; imports and model loading are not timed.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

EPISODES = 100
POLICY = Path(__file__).parents[2] / "baselines" / "policies" / "ppo-cartpole-seed0"
CONTENDERS = ("quarl", "sb3-1", "sb3-8")


def time_quarl() -> float:
    """Steps per second of `roll_out`."""
    import torch

    from quarl_bench.policy.files import load_policy
    from quarl_bench.rl.environments import find_environment
    from quarl_bench.rl.evaluate import TEST_SEEDS, roll_out

    torch.set_num_threads(1)
    policy, environment = load_policy(POLICY).policy, find_environment("cartpole")
    roll_out(policy, environment, range(2))
    start = time.perf_counter()
    rollouts = roll_out(policy, environment, range(TEST_SEEDS, TEST_SEEDS + EPISODES))
    return float(rollouts.lengths.sum()) / (time.perf_counter() - start)


def time_sb3(environments: int) -> float:
    """Steps per second of `evaluate_policy` with this many environments in one process."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    from quarl_bench.policy.files import load_policy

    torch.set_num_threads(1)
    vector = make_vec_env("CartPole-v1", environments, seed=0)
    model = PPO("MlpPolicy", vector, device="cpu")
    layers = load_policy(POLICY).policy.net.layers
    modules = [m for m in (*model.policy.mlp_extractor.policy_net, model.policy.action_net) if hasattr(m, "weight")]
    for module, layer in zip(modules, layers, strict=True):
        module.load_state_dict({"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)})
    evaluate_policy(model, vector, environments)
    start = time.perf_counter()
    _, lengths = evaluate_policy(model, vector, EPISODES, deterministic=True, return_episode_rewards=True)
    return sum(lengths) / (time.perf_counter() - start)


def main() -> None:
    """Time the contenders in turns and print ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    parser.add_argument("--only", choices=CONTENDERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(time_quarl() if options.only == "quarl" else time_sb3(int(options.only.removeprefix("sb3-"))))
        return
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(options.rounds):
        for name, values in rates.items():
            command = [sys.executable, __file__, "--only", name]
            values.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    for name, values in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(rates["quarl"], values, strict=True)]
        line = f"{name:<6} {statistics.median(values):>10,.0f} steps/s"
        print(line + ("" if name == "quarl" else f"   quarl is {statistics.median(ratios):.1f}x as fast "
                      f"(rounds {min(ratios):.1f}x .. {max(ratios):.1f}x)"))  # fmt: skip


if __name__ == "__main__":
    main()
