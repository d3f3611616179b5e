"""Quantization-aware training against training without it, and against what a user would pick for it.

1. One update (forward, loss, backward, Adam) of a perceptron of 17 inputs, two hidden layers of 256 with ReLU and 6
   outputs, at batch 256. `quarl` is this package's modules, frozen; `watching` are the same before quant_delay. `torch`
   is `fake_quantize_per_tensor_affine` on input, weights and activations, biases left alone. `brevitas` is its
   QuantLinear, QuantReLU and QuantIdentity with constant scales and int32 biases, where it is installed.
   All: 8 bits, symmetric weights per tensor of narrow range, fixed ranges, straight-through gradients.
2. A whole PPO CartPole run of its recipe, with qat8 (half of it quantized) and without.

Times are of the processor, which other load disturbs less than wall clock.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

from turns import Script, Turns, main, pick

from quarl_bench.judging.times.contest import Contest, Pair

SIZES, BATCH = (17, 256, 256, 6), 256
SCALE, LEVELS = 0.05, 127
UPDATES, QUICK = 400, 16
CONTENDERS = ("quarl", "watching", "torch", "brevitas", "fp32")
RUNS = ("qat8", "fp32-run")
TARGETS = {"watching": None, "torch": 1.3, "brevitas": 3.0, "fp32": 1 / 1.3}
RUN_TARGET = 1 / 1.35


def build_plain() -> Any:
    """The perceptron."""
    import torch

    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(SIZES):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def build_quarl(*, freeze: bool) -> Any:
    """With this package's modules, watching or frozen to what they watched."""
    import torch

    from quarl_bench.quantization.activations import Activation
    from quarl_bench.quantization.net import Linear, Net
    from quarl_bench.quantization.scheme import Scheme
    from quarl_bench.quantization.training.aware_net import find_path, make_aware

    network = build_plain()
    make_aware(network, list(network), Scheme.parse("qat8"))
    network(torch.randn(BATCH, SIZES[0]))
    if freeze:
        path = find_path(list(network))
        arrays = [(affine.weight.detach().numpy(), affine.bias.detach().numpy()) for affine, _ in path.steps]
        hidden = len(arrays) - 1
        layers = [Linear(w, b, Activation.RELU if i < hidden else Activation.NONE) for i, (w, b) in enumerate(arrays)]
        path.freeze(Net((SIZES[0],), tuple(layers)))
    return network


def build_torch() -> Any:
    """With torch's own operator at the same places."""
    import torch

    def fake(x: Any, low: int = -LEVELS - 1) -> Any:
        return torch.fake_quantize_per_tensor_affine(x, SCALE, 0, low, LEVELS)

    class Rounded(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.linear(x, fake(self.weight, -LEVELS), self.bias)

    class Rounding(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return fake(x)

    layers: list[Any] = [Rounding()]
    for inputs, outputs in itertools.pairwise(SIZES):
        layers += [Rounded(inputs, outputs), torch.nn.ReLU(), Rounding()]
    del layers[-2]  # the last layer has no activation
    return torch.nn.Sequential(*layers)


def build_brevitas() -> Any:
    """With Brevitas's layers, their scales constant as ours are behind quant_delay."""
    import torch
    from brevitas.inject.enum import ScalingImplType
    from brevitas.nn import QuantIdentity, QuantLinear, QuantReLU
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerTensorFloat, Int32Bias, Uint8ActPerTensorFloat

    constant = {"scaling_impl_type": ScalingImplType.CONST, "scaling_init": SCALE * LEVELS}
    signed = Int8ActPerTensorFloat.let(**constant)
    unsigned = Uint8ActPerTensorFloat.let(**constant)
    weights = Int8WeightPerTensorFloat.let(**constant)
    layers: list[Any] = [QuantIdentity(act_quant=signed, return_quant_tensor=True)]
    for inputs, outputs in itertools.pairwise(SIZES):
        layers += [
            QuantLinear(inputs, outputs, bias=True, weight_quant=weights, bias_quant=Int32Bias),
            QuantReLU(act_quant=unsigned, return_quant_tensor=True),
        ]
    return torch.nn.Sequential(*layers[:-1], QuantIdentity(act_quant=signed))


BUILD: dict[str, Callable[[], Any]] = {
    "quarl": lambda: build_quarl(freeze=True),
    "watching": lambda: build_quarl(freeze=False),
    "torch": build_torch,
    "brevitas": build_brevitas,
    "fp32": build_plain,
}


def time_updates(name: str, updates: int) -> float:
    """Microseconds of CPU time per update, behind a warm-up."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = BUILD[name]()
    optimizer = torch.optim.Adam(network.parameters(), 3e-4)
    x, target = torch.randn(BATCH, SIZES[0]), torch.randn(BATCH, SIZES[-1])

    def update() -> None:
        loss: Any = torch.nn.functional.mse_loss(network(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(updates // 8):
        update()
    begin = time.process_time()
    for _ in range(updates):
        update()
    return 1e6 * (time.process_time() - begin) / updates


def time_run(scheme: str, *, quick: bool) -> float:
    """Seconds of CPU time of a whole run, without its evaluations; quick: of its first rollout."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from quarl_bench.environments.registry import find_environment
    from quarl_bench.training.recipes import find_recipe
    from quarl_bench.training.sb3.aware import freeze
    from quarl_bench.training.sb3.models import make_model
    from quarl_bench.training.sb3.vector import make_vector

    torch.set_num_threads(1)
    recipe = find_recipe("ppo", "cartpole", scheme=scheme)

    class Delay(BaseCallback):  # what `quarl train` does between rollouts
        def _on_rollout_start(self) -> None:
            if scheme and self.num_timesteps >= recipe.quant_delay:
                freeze(self.model)

        def _on_step(self) -> bool:
            return True

    model = make_model(recipe, make_vector(find_environment("cartpole"), recipe.environments, 0), 0)
    begin = time.process_time()
    model.learn(1 if quick else recipe.timesteps, callback=Delay())
    return time.process_time() - begin


def measure(name: str, options: Any) -> tuple[float]:
    """Of an update or of a run."""
    if name in RUNS:
        return (time_run("qat8" if name == "qat8" else "", quick=options.quick),)
    return (time_updates(name, QUICK if options.quick else UPDATES),)


def compare(turns: Turns) -> Iterator[Contest]:
    """Updates, then runs."""
    updates = pick(turns.take(CONTENDERS))
    pairs = tuple(Pair("quarl", name, target) for name, target in TARGETS.items() if name in updates)
    yield Contest(f"one update, {'-'.join(map(str, SIZES))}, batch {BATCH}", "us of CPU time", updates, pairs)
    yield Contest("a PPO CartPole run", "CPU seconds", pick(turns.take(RUNS)), (Pair(*RUNS, target=RUN_TARGET),))


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3, measure, needs={"brevitas": "brevitas"}))
