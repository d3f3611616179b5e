"""How fast DQN trains policies of several sizes in several precisions, against a good fp32 baseline.

A training step is stable-baselines3's own `DQN.train` of one gradient step, from a filled replay buffer of random
images of Pong's shape; an end-to-end rate is that of `DQN.learn` on Pong itself. Contenders take turns in blocks, each
block on a fresh model. Two things make half precision look better than it is, and belong to fp32 as well: images that
stay bytes in channels-last order, and matrix products that MKL runs slowly on other makers' processors. "lean" is
stable-baselines3's fp32 with both mended; who claims a gain has to beat the faster of the two. On CUDA the convolutions
of both are TF32, as torch has them.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.envs import FakeImageEnv
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from quarl_bench.environments.registry import find_environment
from quarl_bench.errors import MissingExtra, SpecError
from quarl_bench.system.load import LoadMeter
from quarl_bench.system.processor import read_processor
from quarl_bench.training.recipes import BF16, FP16, FP32, Recipe, find_recipe
from quarl_bench.training.sb3.matmul_times import CPU, CUDA, LeanLinear, list_kernels, time_call
from quarl_bench.training.sb3.mixed_precision import HalfRegion
from quarl_bench.training.sb3.models import make_model
from quarl_bench.training.sb3.scaled_cnn import PAPER, scale_size
from quarl_bench.training.sb3.vector import make_vector

LEAN = "lean"
CONTENDERS = {CPU: (FP32, LEAN, BF16), CUDA: (FP32, LEAN, BF16, FP16)}
DIVISORS = {CPU: 8, CUDA: 1}  # of the paper's sizes, by what can train them
BATCH, FILLED = 64, 512  # transitions of a step, and of the replay buffer
MAX_OTHER_CORES = 0.1  # cores that others may use beside a timing
TASK = "pong"


@dataclass(frozen=True)
class StepPlan:
    """Blocks of so many seconds and calls at least; `steps` of the environment in each, 0 for none."""

    blocks: int = 6
    seconds: float = 1.0
    calls: int = 5
    steps: int = 96
    sizes: tuple[str, ...] = tuple(PAPER)
    divisor: int = DIVISORS[CPU]


@dataclass(frozen=True)
class StepTimes:
    """Medians of blocks on one device. Keys are `<size>-<contender>`; of kernels `<width>-<kernel>`.

    `steps` and `kernels` are seconds of one call, `rates` environment steps per second; `others` is the processor time
    that anything else used meanwhile, in cores.
    """

    device: str
    machine: str
    cores: int
    versions: dict[str, str]
    divisor: int
    steps: dict[str, list[float]]
    rates: dict[str, list[float]]
    kernels: dict[str, list[float]]
    others: float

    @property
    def faults(self) -> tuple[str, ...]:
        """Why these times are void; empty: they count."""
        if self.others <= MAX_OTHER_CORES:
            return ()
        return (f"other processes used {self.others:.2f} cores beside the timing (limit {MAX_OTHER_CORES:g})",)

    def find_baseline(self, size: str) -> str:
        """The faster of the fp32 contenders."""
        return min((FP32, LEAN), key=lambda name: statistics.median(self.steps[f"{size}-{name}"]))

    def list_gains(self, size: str, precision: str, baseline: str = "") -> list[float]:
        """How many times as fast as the baseline, block by block."""
        slow, fast = (self.steps[f"{size}-{name}"] for name in (baseline or self.find_baseline(size), precision))
        return [a / b for a, b in zip(slow, fast, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Built-in types only; `StepTimes(**...)` is the inverse."""
        return asdict(self)


def find_error(values: Sequence[float]) -> float:
    """Standard error of the blocks' mean, which stands for that of their median."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def measure_step_times(device: str, plan: StepPlan, progress: Callable[[str], None] = lambda _: None) -> StepTimes:
    """Time every contender of `device` in every size, one thread each; SpecError for a device that is not there.

    It ends behind a block where others have used so much that the times are void, however quiet the rest would be.
    """
    if device == CUDA and not torch.cuda.is_available():
        raise SpecError("device 'cuda': torch sees none")
    found: dict[str, dict[str, list[float]]] = {"steps": {}, "rates": {}, "kernels": {}}
    watch = LoadMeter()
    with _one_thread():
        for done in range(1, plan.blocks + 1):
            for size in plan.sizes:
                for contender in CONTENDERS[device]:
                    key = f"{size}-{contender}"
                    progress(key)
                    seconds, rate = _time_block(size, contender, device, plan)
                    found["steps"].setdefault(key, []).append(seconds)
                    if rate is not None:
                        found["rates"].setdefault(key, []).append(rate)
            for key, call in list_kernels(device, CONTENDERS[device][2:]):
                found["kernels"].setdefault(key, []).append(time_call(call, plan.calls, plan.seconds / 10, device))
            if watch.read() * done > MAX_OTHER_CORES * plan.blocks:
                break
    return StepTimes(
        device=device,
        machine=_name_machine(device),
        cores=os.cpu_count() or 1,
        versions={"torch": torch.__version__.partition("+")[0]},
        divisor=plan.divisor,
        others=watch.read(),
        **found,
    )


def make_timed_model(size: str, contender: str, divisor: int, vector: VecEnv, device: str) -> DQN:
    """DQN by Pong's recipe with the network of Policy `size`."""
    precision = FP32 if contender == LEAN else contender
    recipe = _scale_recipe(replace(find_recipe("dqn", TASK), precision=precision), size, divisor)
    model: Any = make_model(recipe, vector, seed=0, device=device, stock=contender == FP32)
    if contender == LEAN and device == CPU:
        for region in (module for module in model.policy.modules() if isinstance(module, HalfRegion)):
            linear: Any = region.linear
            linear[0].__class__ = LeanLinear
    return model  # type: ignore[no-any-return]


def _scale_recipe(recipe: Recipe, size: str, divisor: int) -> Recipe:
    """Pong's recipe with another network, and a buffer that a timing can fill."""
    network = {"features_extractor_class": "sized", "features_extractor_kwargs": scale_size(size, divisor)}
    changes = {"buffer_size": FILLED * 8, "learning_starts": 0, "policy_kwargs": network}
    return replace(recipe, hyperparameters=recipe.hyperparameters | changes)


def _time_block(size: str, contender: str, device: str, plan: StepPlan) -> tuple[float, float | None]:
    """Seconds of a step of training, and environment steps per second where Pong is installed."""
    images = DummyVecEnv([lambda: FakeImageEnv(6, 84, 84, 4, discrete=True, channel_first=True)] * 8)
    model = make_timed_model(size, contender, plan.divisor, images, device)
    model._setup_learn(0)  # noqa: SLF001 (makes the logger that `train` writes to)
    _fill_replay(model)
    seconds = time_call(lambda: model.train(1, BATCH), plan.calls, plan.seconds, device)
    return seconds, _time_learning(size, contender, device, plan) if plan.steps else None


def _time_learning(size: str, contender: str, device: str, plan: StepPlan) -> float | None:
    try:
        games = make_vector(find_environment(TASK), 8, 0)
    except MissingExtra:
        return None
    model = make_timed_model(size, contender, plan.divisor, games, device)
    model.learn(BATCH + plan.steps // 3)  # the games and the first updates are warm
    before, start = model.num_timesteps, time.perf_counter()
    model.learn(plan.steps, reset_num_timesteps=False)
    taken = time.perf_counter() - start
    games.close()
    return (model.num_timesteps - before) / taken


def _fill_replay(model: DQN) -> None:
    """Random transitions: what is in them does not change how long they take."""
    rng, buffer = np.random.default_rng(0), model.replay_buffer
    assert buffer is not None  # noqa: S101 (of every DQN)
    shape = (buffer.n_envs, *model.observation_space.shape)  # type: ignore[misc]
    count = buffer.n_envs
    for _ in range(FILLED // count):
        images = rng.integers(0, 256, (2, *shape), np.uint8)
        actions, rewards = rng.integers(0, 6, (count, 1)), rng.normal(size=count)
        buffer.add(images[0], images[1], actions, rewards, np.zeros(count), [{}] * count)


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


def _name_machine(device: str) -> str:
    if device == CUDA:
        return torch.cuda.get_device_name()
    return read_processor("model name") or "unknown"
