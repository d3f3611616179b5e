"""SAC for several seeds in one process against what a user would pick: updates per second of CPU time.

Networks of 256x256, batch 256, Hopper's shapes; an update is one of the critics, one of the actor, one of the
temperature and of the targets, its minibatch drawn from a replay buffer. `quarl` trains four seeds at once, in fp32, in
bf16, and in fp32 with a 3-bit actor; peers train one seed, so that their rate is that of one after the other. `sb3` is
stable-baselines3 as it comes, fp32; `torch` a plain loop with fused Adam, fp32; `brevitas` that loop with an actor of
Brevitas's layers at 3 bits (percentile of 300 batches, then learned scales, as LQCC); `sbx` is JAX, fp32, which asks
for another NumPy than ours. `products` is none of them: an update's products of matrices and nothing else, for four
seeds at once by torch. No update by torch takes less.
"""

import importlib
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.system.processor import lacks_bf16

SEEDS, BATCH, WIDTH, OBSERVATION, ACTION = 4, 256, 256, 11, 3
ROWS, WARM_UP, UPDATES = 2_000, 160, 60
QUICK = 8  # updates of both instead
OURS = {"quarl-fp32": ("fp32", "fp32"), "quarl-bf16": ("fp32", "bf16"), "quarl-3bit": ("i3c3o3", "fp32")}
FLOORS = {"products-fp32": "float32", "products-bf16": "bfloat16"}
BF16 = "quarl-bf16", "products-bf16"
PAIRS = (
    Pair("quarl-fp32", "sb3", 1.4), Pair("quarl-bf16", "sb3", 3.0), Pair("quarl-3bit", "quarl-fp32", 0.75),
    Pair("quarl-3bit", "brevitas", 3.0), Pair("quarl-fp32", "torch"), Pair("quarl-fp32", "sbx"),
    Pair("quarl-bf16", "sbx"), Pair("products-fp32", "sb3"), Pair("products-bf16", "sb3"),
    Pair("products-fp32", "brevitas"),
)  # fmt: skip


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
        acted = rng.uniform(-1, 1, (SEEDS, ACTION)).astype(np.float32)
        replay.add(seen, acted, rng.normal(size=SEEDS), np.zeros(SEEDS), after)
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

    class Shapes(gymnasium.Env):
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


def list_products() -> list[tuple[int, int, int]]:
    """Of an update of one seed, each product's (rows, summands, columns)."""
    actor = [*itertools.pairwise((OBSERVATION, WIDTH, WIDTH, ACTION))]
    critics = [*itertools.pairwise((OBSERVATION + ACTION, WIDTH, WIDTH, 1))] * 2

    def forward(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(BATCH, inputs, outputs) for inputs, outputs in layers]

    def to_weights(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(inputs, BATCH, outputs) for inputs, outputs in layers]

    def to_inputs(layers: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
        return [(BATCH, outputs, inputs) for inputs, outputs in layers]

    hidden = [layer for layer in critics if layer[0] == WIDTH]  # nobody asks what the data's gradient is
    goal = forward(actor) + forward(critics)
    values = forward(critics) + to_weights(critics) + to_inputs(hidden)
    actions = forward(actor) + forward(critics) + to_inputs(critics) + to_weights(actor) + to_inputs(actor[1:])
    return goal + values + actions


def prepare_products(kind: str) -> Callable[[], None]:
    """The products of one update of four seeds, in fp32 or bf16."""
    import torch

    dtype = getattr(torch, kind)
    pairs = [
        (torch.rand(SEEDS, rows, summands, dtype=dtype), torch.rand(SEEDS, summands, columns, dtype=dtype))
        for rows, summands, columns in list_products()
    ]

    def update() -> None:
        for one, other in pairs:
            torch.bmm(one, other)

    return update


PREPARE: dict[str, Callable[[], Callable[[], None]]] = {
    **{name: partial(prepare_quarl, *how) for name, how in OURS.items()},
    **{name: partial(prepare_products, kind) for name, kind in FLOORS.items()},
    "sb3": lambda: prepare_sb3("stable_baselines3"),
    "sbx": lambda: prepare_sb3("sbx"),
    "torch": lambda: prepare_loop(build_perceptron(OBSERVATION, ACTION)),
    "brevitas": lambda: prepare_loop(build_brevitas()),
}


def time_updates(name: str, warm_up: int, updates: int) -> float:
    """Updates of one seed per second of CPU time, behind a warm-up that ends every watching of ranges."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    update, seeds = PREPARE[name](), SEEDS if name in OURS or name in FLOORS else 1
    for _ in range(warm_up):
        update()
    begin = time.process_time()
    for _ in range(updates):
        update()
    return seeds * updates / (time.process_time() - begin)


def measure(name: str, options: Any) -> tuple[float]:
    """Of one contender."""
    return (time_updates(name, *((QUICK, QUICK) if options.quick else (WARM_UP, UPDATES))),)


def compare(turns: Turns) -> Iterator[Contest]:
    """Of all contenders that are there; bf16 only where the processor does not emulate it."""
    updates = pick(turns.take(name for name in PREPARE if name not in BF16 or not lacks_bf16()))
    pairs = tuple(pair for pair in PAIRS if {pair.ours, pair.theirs} <= updates.keys())
    note = "" if "quarl-bf16" in updates else "this processor would emulate bf16"
    yield Contest("a SAC update", "updates per CPU second", updates, pairs, rate=True, note=note)


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, needs={"brevitas": "brevitas", "sbx": "sbx"}))
