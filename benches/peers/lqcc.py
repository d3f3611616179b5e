"""SAC for several seeds in one process against what a user would pick: updates per second of CPU time.

Networks of 256x256, batch 256, Hopper's shapes; an update is one of the critics, one of the actor, one of the
temperature and of the targets, its minibatch drawn from a replay buffer. Every contender has a process of its own with
one thread, in turns: `python benches/peers/lqcc.py [--rounds N]`. `quarl` trains four seeds at once, in fp32, in bf16,
and in fp32 with a 3-bit actor; peers train one seed, so that their rate is that of one after the other. `sb3` is
stable-baselines3 as it comes, fp32; `torch` a plain loop with fused Adam, fp32; `brevitas` that loop with an actor of
Brevitas's layers at 3 bits (percentile of 300 batches, then learned scales, as LQCC), where it is installed; `sbx` is
JAX, fp32, where it is installed or in the interpreter that `--sbx` names, because JAX asks for another NumPy.
`--whole` compares whole training steps on Hopper, environment and acting included. `--hundred` trains on Hopper for
100,000 steps, an hour and more: four seeds of ours and one of stable-baselines3, in turns of 10,000 steps in one
process.

Prints medians of updates per CPU second, and of the ratios within a round.
"""

import argparse
import importlib
import importlib.util
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEEDS, BATCH, WIDTH, OBSERVATION, ACTION = 4, 256, 256, 11, 3
ROWS, WARM_UP, UPDATES = 2_000, 160, 60
OURS = {"quarl-fp32": ("fp32", "fp32"), "quarl-bf16": ("fp32", "bf16"), "quarl-3bit": ("i3c3o3", "fp32")}
PEERS = ("sb3", "torch", "brevitas", "sbx")
TARGETS = (
    ("quarl-fp32", "sb3", 1.4), ("quarl-bf16", "sb3", 3.0), ("quarl-3bit", "quarl-fp32", 0.75),
    ("quarl-3bit", "brevitas", 3.0), ("quarl-fp32", "torch", None), ("quarl-fp32", "sbx", None),
    ("quarl-bf16", "sbx", None),
)  # fmt: skip
NEEDS = {"brevitas": "brevitas", "sbx": "sbx"}
WHOLE = ("quarl-whole", "sb3-whole")
WHOLE_STEPS, HUNDRED, SLICE = 1_500, 100_000, 10_000


def prepare_quarl(scheme: str, precision: str) -> Callable[[], None]:
    """One update of four seeds."""
    import numpy as np

    from quarl_bench.training.multi_seed.agents import Sac
    from quarl_bench.training.multi_seed.recipe import find_recipe
    from quarl_bench.training.multi_seed.replay import SeedReplay

    recipe = find_recipe("sac").quantize(scheme).override(precision=precision)
    high = np.ones(ACTION, dtype=np.float32)
    agent = Sac(recipe, range(SEEDS), -high, high, OBSERVATION)
    rng = np.random.default_rng(0)
    replay = SeedReplay(Path(tempfile.mkdtemp()), SEEDS, ROWS, OBSERVATION, ACTION)
    for _ in range(ROWS):
        seen, after = rng.normal(size=(2, SEEDS, OBSERVATION)).astype(np.float32)
        agent.statistics.update(seen)
        replay.add(seen, rng.uniform(-1, 1, (SEEDS, ACTION)), rng.normal(size=SEEDS), np.zeros(SEEDS), after)
    sampling = [np.random.default_rng(seed) for seed in range(SEEDS)]
    return lambda: agent.update(replay.sample(sampling, BATCH))


def prepare_sb3(library: str) -> Callable[[], None]:
    """One gradient step of stable-baselines3, or of its JAX sibling."""
    import numpy as np
    from stable_baselines3.common.logger import Logger

    algorithm = importlib.import_module(library).SAC
    model = algorithm("MlpPolicy", make_shapes(), batch_size=BATCH, buffer_size=ROWS, seed=0)
    model.set_logger(Logger(None, []))
    rng = np.random.default_rng(0)
    for _ in range(ROWS):
        seen, after = rng.normal(size=(2, 1, OBSERVATION)).astype(np.float32)
        model.replay_buffer.add(
            seen, after, rng.uniform(-1, 1, (1, ACTION)), rng.normal(size=1), np.zeros(1, dtype=bool), [{}]
        )
    return lambda: model.train(1, BATCH)


def make_shapes() -> Any:
    """An environment with Hopper's spaces, which is never stepped."""
    import gymnasium
    import numpy as np

    class Shapes(gymnasium.Env):  # type: ignore[type-arg]
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32)
        action_space = gymnasium.spaces.Box(-1, 1, (ACTION,), np.float32)

    return Shapes()


def build_brevitas() -> Any:
    """LQCC's actor in the layers its authors used."""
    import torch
    from brevitas.nn import QuantIdentity, QuantLinear, QuantReLU
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerTensorFloat, Int32Bias, Uint8ActPerTensorFloat

    statistics_of = {"bit_width": 3, "high_percentile_q": 99.999, "collect_stats_steps": 300}
    signed, unsigned = Int8ActPerTensorFloat.let(**statistics_of), Uint8ActPerTensorFloat.let(**statistics_of)
    weights = Int8WeightPerTensorFloat.let(bit_width=3)

    def linear(inputs: int, outputs: int) -> Any:
        return QuantLinear(inputs, outputs, bias=True, weight_quant=weights, bias_quant=Int32Bias)

    return torch.nn.Sequential(
        QuantIdentity(act_quant=signed, return_quant_tensor=True),
        linear(OBSERVATION, WIDTH), QuantReLU(act_quant=unsigned, return_quant_tensor=True),
        linear(WIDTH, WIDTH), QuantReLU(act_quant=unsigned, return_quant_tensor=True),
        linear(WIDTH, ACTION), QuantIdentity(act_quant=signed),
    )  # fmt: skip


def build_perceptron(inputs: int, outputs: int) -> Any:
    """256x256 with ReLUs."""
    from torch.nn import Linear, ReLU, Sequential

    return Sequential(Linear(inputs, WIDTH), ReLU(), Linear(WIDTH, WIDTH), ReLU(), Linear(WIDTH, outputs))


def prepare_loop(actor: Any) -> Callable[[], None]:
    """One update of one seed, as CleanRL writes it, with fused optimizers."""
    import copy

    import torch

    joint = OBSERVATION + ACTION
    critics = torch.nn.ModuleList([build_perceptron(joint, 1) for _ in range(2)])
    targets = copy.deepcopy(critics).requires_grad_(requires_grad=False)
    sigma = torch.nn.Sequential(torch.nn.Linear(OBSERVATION, 64), torch.nn.Tanh(), torch.nn.Linear(64, ACTION))
    log_alpha = torch.zeros(1, requires_grad=True)
    adam = [
        torch.optim.Adam(parameters, lr, fused=True)
        for parameters, lr in (
            (list(critics.parameters()), 1e-3),
            ([*actor.parameters(), *sigma.parameters()], 3e-4),
            ([log_alpha], 1e-3),
        )
    ]
    data = [torch.randn(ROWS, n) for n in (OBSERVATION, OBSERVATION, ACTION, 1)]

    def sample(x: Any) -> tuple[Any, Any]:
        mean, log_sd = actor(x), 3.5 * (sigma(x).tanh() + 1) - 5
        noise = torch.randn_like(log_sd)
        action = (mean + log_sd.exp() * noise).tanh()
        density = -0.5 * noise.square() - log_sd - 0.9189 - (1 - action.square() + 1e-6).log()
        return action, density.sum(1, keepdim=True)

    def value(nets: Any, x: Any, action: Any) -> list[Any]:
        return [net(torch.cat([x, action], 1)) for net in nets]

    def step(optimizer: Any, loss: Any) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def update() -> None:
        rows = torch.randint(ROWS, (BATCH,))
        seen, after, action, reward = (array[rows] for array in data)
        with torch.no_grad():
            chosen, density = sample(after)
            goal = reward + 0.99 * (torch.minimum(*value(targets, after, chosen)) - log_alpha.exp() * density)
        step(adam[0], sum((q - goal).square().mean() for q in value(critics, seen, action)))
        critics.requires_grad_(requires_grad=False)
        chosen, density = sample(seen)
        step(adam[1], (log_alpha.exp().detach() * density - torch.minimum(*value(critics, seen, chosen))).mean())
        critics.requires_grad_(requires_grad=True)
        step(adam[2], (-log_alpha.exp() * (density.detach() - ACTION)).mean())
        with torch.no_grad():
            torch._foreach_lerp_(list(targets.parameters()), list(critics.parameters()), 0.005)

    return update


PREPARE: dict[str, Callable[[], Callable[[], None]]] = {
    **{name: lambda how=how: prepare_quarl(*how) for name, how in OURS.items()},
    "sb3": lambda: prepare_sb3("stable_baselines3"),
    "sbx": lambda: prepare_sb3("sbx"),
    "torch": lambda: prepare_loop(build_perceptron(OBSERVATION, ACTION)),
    "brevitas": lambda: prepare_loop(build_brevitas()),
}


def time_updates(name: str) -> float:
    """Updates of one seed per second of CPU time, behind a warm-up that ends every watching of ranges."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    update, seeds = PREPARE[name](), SEEDS if name in OURS else 1
    for _ in range(WARM_UP):
        update()
    begin = time.process_time()
    for _ in range(UPDATES):
        update()
    return seeds * UPDATES / (time.process_time() - begin)


def time_whole(name: str) -> float:
    """Steps of one seed per second of CPU time, of training on Hopper behind the random phase."""
    import torch

    torch.set_num_threads(1)
    if name == "sb3-whole":
        from stable_baselines3 import SAC

        from quarl_bench.environments.registry import find_environment
        from quarl_bench.training.sb3.vector import make_vector

        model = SAC("MlpPolicy", make_vector(find_environment("hopperv4"), 1, 0), learning_starts=100, seed=0)
        model.learn(200)
        begin = time.process_time()
        model.learn(WHOLE_STEPS)
        return WHOLE_STEPS / (time.process_time() - begin)
    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.multi_seed.recipe import find_recipe
    from quarl_bench.training.multi_seed.train import Loop, MultiSeedRun
    from quarl_bench.training.sb3.run import TrainingOptions

    recipe = find_recipe("sac").override(learning_starts=100)
    run = MultiSeedRun(
        recipe, find_environment("hopperv4"), tuple(range(SEEDS)), Path(tempfile.mkdtemp()), TrainingOptions()
    )
    loop = Loop(run)
    for _ in range(200):
        loop.advance()
    begin = time.process_time()
    for _ in range(WHOLE_STEPS):
        loop.advance()
    return SEEDS * WHOLE_STEPS / (time.process_time() - begin)


def train_hundred() -> None:
    """Wall clock and CPU minutes of 100,000 steps on Hopper, evaluations left out; prints them as they come."""
    import torch
    from stable_baselines3 import SAC

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.multi_seed.recipe import find_recipe
    from quarl_bench.training.multi_seed.train import Loop, MultiSeedRun
    from quarl_bench.training.sb3.run import TrainingOptions
    from quarl_bench.training.sb3.vector import make_vector

    torch.set_num_threads(1)
    hopper, recipe = find_environment("hopperv4"), find_recipe("sac").override(timesteps=HUNDRED)
    loop = Loop(MultiSeedRun(recipe, hopper, tuple(range(SEEDS)), Path(tempfile.mkdtemp()), TrainingOptions()))
    model = SAC("MlpPolicy", make_vector(hopper, 1, 0), learning_starts=recipe.learning_starts, seed=0)

    def advance() -> None:
        for _ in range(SLICE):
            loop.advance()

    sides = {
        f"quarl, {SEEDS} seeds": advance,
        "sb3, 1 seed": lambda: model.learn(SLICE, reset_num_timesteps=False),
    }
    minutes = {name: [0.0, 0.0] for name in sides}
    for steps in range(SLICE, HUNDRED + 1, SLICE):
        for name, go_on in sides.items():
            wall, cpu = time.perf_counter(), time.process_time()
            go_on()
            minutes[name][0] += (time.perf_counter() - wall) / 60
            minutes[name][1] += (time.process_time() - cpu) / 60
        told = (f"{name} {wall:.1f} minutes ({cpu:.1f} of CPU)" for name, (wall, cpu) in minutes.items())
        print(f"  {steps:,} steps: {'; '.join(told)}", flush=True)
    (ours, ours_cpu), (theirs, theirs_cpu) = minutes.values()
    print(
        f"  {SEEDS} seeds one after the other would take sb3 {SEEDS * theirs:.0f} minutes: "
        f"{SEEDS * theirs / ours:.2f}x ours, {SEEDS * theirs_cpu / ours_cpu:.2f}x by CPU time"
    )


def measure(names: tuple[str, ...], rounds: int, sbx: str = sys.executable) -> dict[str, list[float]]:
    """Rates of the contenders, in turns."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    alone = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
    for _ in range(rounds):
        for name, values in rates.items():
            command = [sbx if name == "sbx" else sys.executable, __file__, "--only", name]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | alone)
            values.append(float(output.stdout.splitlines()[-1]))
    return rates


def describe_ratio(rates: dict[str, list[float]], one: str, other: str) -> str:
    """Median, least and greatest ratio within a round."""
    ratios = [mine / theirs for mine, theirs in zip(rates[one], rates[other], strict=True)]
    return f"{one} / {other}: {statistics.median(ratios):.2f}x ({min(ratios):.2f}x .. {max(ratios):.2f}x)"


def main() -> None:
    """Compare, and print ratios beside their targets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    parser.add_argument("--whole", action="store_true", help="whole training steps instead of updates.")
    parser.add_argument("--hundred", action="store_true", help="100,000 steps on Hopper instead.")
    parser.add_argument("--sbx", metavar="PYTHON", help="interpreter that has sbx. Default: this one, if it has.")
    parser.add_argument("--only", choices=(*PREPARE, *WHOLE), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        print(time_whole(options.only) if options.only in WHOLE else time_updates(options.only))
        return
    if options.hundred:
        train_hundred()
        return
    there = tuple(
        name
        for name in (*OURS, *PEERS)
        if name not in NEEDS or importlib.util.find_spec(NEEDS[name]) or (name == "sbx" and options.sbx)
    )
    rates = measure(WHOLE if options.whole else there, options.rounds, options.sbx or sys.executable)
    for name, values in rates.items():
        rate = statistics.median(values)
        hours = f"; 100,000 steps of each of {SEEDS} seeds: {SEEDS * HUNDRED / rate / 60:.0f} CPU minutes (estimated)"
        print(f"  {name:<12}{rate:>8.0f} per CPU second{hours if options.whole else ''}")
    if options.whole:
        print("  " + describe_ratio(rates, *WHOLE))
    for one, other, target in () if options.whole else TARGETS:
        if other in rates:
            print(f"  {describe_ratio(rates, one, other)}" + (f", target {target}x" if target else ""))


if __name__ == "__main__":
    main()
