"""Deployed policies against each other and against stable-baselines3's `predict`: one observation, one thread.

Untrained nets of 24 observations and 4 actions (I: 64, 64, 64; II: 256, 256, 256; III: 4096, 512, 1024) and NatureCNN
on 4 x 84 x 84 pixels. Contenders take turns in short blocks of one process. `call` is one call from Python on prepared
buffers (ctypes for C, `invoke` for LiteRT), `run` is a Runner's `run` with its copies, `act` goes from raw observation
to action. `harness` is the same C without Python, beside the fastest read of as many bytes as the weights have.

Times are of the processor, so that other work disturbs them less; its caches are shared all the same.
"""

import argparse
import ctypes
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from turns import Script, Turns, main, pick

from quarl_bench.backends.artefact import Artefact
from quarl_bench.backends.c.backend import CRunner
from quarl_bench.backends.deployed import DeployedPolicy, start
from quarl_bench.backends.export import export_policy
from quarl_bench.judging.times.contest import Contest, Pair
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet, deployable
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Layer, Linear, Net
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.system.compiler import find_compiler

HIDDEN = {"I": (64, 64, 64), "II": (256, 256, 256), "III": (4096, 512, 1024)}
NATURE = "nature"
OBSERVATIONS, ACTIONS = 24, 4
BLOCK = 0.01  # seconds of one contender's turn
WARM = 10  # of how many calls one more runs before, so that no contender pays for what the last left in the caches
STATES = 300
PAIRS = (
    Pair("c-int8 call", "litert-int8 call", 1.0), Pair("c-fp32 call", "litert-fp32 call", 1 / 1.5),
    Pair("c-int8 run", "litert-int8 run"), Pair("litert-int8 call", "litert-fp32 call"),
    Pair("litert-int8 run", "litert-fp32 run"), Pair("onnx-int8 run", "onnx-fp32 run"),
    Pair("c-int8 call", "c-fp32 call"), Pair("c-int8 call", "c-fp32-fast call"), Pair("c-int8 act", "sb3 act", 100.0),
)  # fmt: skip
READS, READ_ROUNDS, HARNESS_CALLS = 9, 400, 3000
Call = Callable[[], Any]

READ_LOOP = r"""
#include <stdint.h>
#include <time.h>
double read_seconds(const int64_t *words, long count, long rounds, int64_t *sink)
{
    struct timespec a, b;
    double best = 1e9;
    for (long r = 0; r < rounds; r++) {
        int64_t sums[64] = {0};
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (long i = 0; i + 64 <= count; i += 64)
            for (int k = 0; k < 64; k++)
                sums[k] += words[i + k];
        clock_gettime(CLOCK_MONOTONIC, &b);
        for (int k = 0; k < 64; k++)
            *sink += sums[k];
        double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        best = seconds < best ? seconds : best;
    }
    return best;
}
"""


def make_policy(name: str) -> PolicyNet:
    """An untrained policy of one of the four nets."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Any:
        return (rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)

    def bias(count: int) -> Any:
        return (rng.standard_normal(count) * 0.1).astype(np.float32)

    head = ActionHead(HeadKind.ARGMAX)
    if name == NATURE:
        layers: list[Layer] = [
            Conv2d(draw(outputs, inputs, kernel, kernel), bias(outputs), stride, Activation.RELU)
            for inputs, outputs, kernel, stride in ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        ]
        layers += [Linear(draw(512, 3136), bias(512), Activation.RELU), Linear(draw(6, 512), bias(6))]
        shape: tuple[int, ...] = (4, 84, 84)
        return PolicyNet(ObservationTransform(shape, image=True), Net(shape, tuple(layers)), head)
    widths = (OBSERVATIONS, *HIDDEN[name], ACTIONS)
    layers = [
        Linear(draw(n, m), bias(n), Activation.NONE if n == ACTIONS else Activation.RELU) for m, n in pairwise(widths)
    ]
    return PolicyNet(ObservationTransform((OBSERVATIONS,)), Net((OBSERVATIONS,), tuple(layers)), head)


def deploy(policy: PolicyNet, folder: Path) -> dict[str, DeployedPolicy]:
    """The policy in every backend, in fp32 and int8."""
    rng = np.random.default_rng(1)
    shape = (STATES, *policy.transform.shape)
    states = rng.integers(0, 256, shape, np.uint8) if policy.transform.image else rng.standard_normal(shape, np.float32)
    deployed = {}
    for scheme in ("fp32", "int8"):
        quantized = deployable(policy.quantize(Scheme.parse(scheme), states))
        for backend in ("litert", "c", "onnx"):
            name = f"{backend}-{scheme}"
            settings = {"scheme": scheme, "source_sha256": "0" * 64, "backend": backend}
            deployed[name] = export_policy(quantized, folder / name, states, **settings)
    artefact: Artefact = deployed["c-int8"].artefact
    deployed["c-int8-integer"] = start(artefact, artefact.runtime.kernel.removesuffix("-float"))
    deployed["c-fp32-fast"] = start(deployed["c-fp32"].artefact, "fast-math")
    return deployed


def list_calls(deployed: dict[str, DeployedPolicy]) -> dict[str, Call]:
    """`call` and `run` of every contender, on one golden input."""
    calls: dict[str, Call] = {}
    for name, policy in deployed.items():
        runner: Any = policy.net.runner
        x = np.ascontiguousarray(policy.artefact.golden.inputs[:1])
        if isinstance(runner, CRunner):
            y = np.empty((1, *runner.output.shape), runner.output.dtype)
            calls[f"{name} call"] = bind(runner._library.policy_run, x, y)  # noqa: SLF001
        elif name.startswith("litert"):
            runner.run(x)
            calls[f"{name} call"] = runner._interpreter.invoke  # noqa: SLF001
        calls[f"{name} run"] = partial(runner.run, x)
    return calls


def bind(function: Any, *arrays: Any) -> Call:
    """A call on prepared pointers; the arrays live as long as the call."""
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]

    def call(function: Any = function, pointers: Any = pointers, keep: Any = arrays) -> Any:
        return function(*pointers)

    return call


def list_acts(policy: PolicyNet, deployed: dict[str, DeployedPolicy]) -> dict[str, Call]:
    """From raw observation to action: the C library, and stable-baselines3's PPO of the same widths."""
    import gymnasium
    from stable_baselines3 import PPO

    class Task(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(-10, 10, (OBSERVATIONS,))
        action_space = gymnasium.spaces.Discrete(ACTIONS)

    widths = [layer.weight.shape[0] for layer in policy.net.layers[:-1]]
    settings: dict[str, Any] = {"policy_kwargs": {"net_arch": widths}, "n_steps": 8, "batch_size": 8, "device": "cpu"}
    model = PPO("MlpPolicy", Task(), **settings)
    observation = np.ascontiguousarray(deployed["c-int8"].artefact.golden.observations[0])
    runner: Any = deployed["c-int8"].net.runner
    return {
        "c-int8 act": bind(runner._library.policy_act, observation),  # noqa: SLF001
        "sb3 act": lambda: model.predict(observation, deterministic=True),
    }


def time_calls(calls: dict[str, Call], turns: Turns, key: str) -> dict[str, tuple[float, ...]]:
    """Processor seconds per call of each contender, block by block in turns; each block begins with calls untimed."""
    sizes = {}
    for name, call in calls.items():
        begin, count = time.process_time(), 0
        while time.process_time() - begin < BLOCK or count < 3:
            call()
            count += 1
        sizes[name] = count

    def time_block(call: Call, size: int) -> tuple[float]:
        for _ in range(1 + size // WARM):
            call()
        begin = time.process_time()
        for _ in range(size):
            call()
        return ((time.process_time() - begin) / size,)

    return pick(turns.repeat({name: partial(time_block, call, sizes[name]) for name, call in calls.items()}, key))


def compare_net(name: str, turns: Turns) -> Iterator[Contest]:
    """Calls of all contenders of one net in turns, and sizes of files."""
    policy = make_policy(name)
    weights = sum(layer.weight.size for layer in policy.net.layers)
    with tempfile.TemporaryDirectory() as folder:
        deployed = deploy(policy, Path(folder))
        calls = list_calls(deployed) | (list_acts(policy, deployed) if name == "I" else {})
        times = {call: tuple(1e6 * each for each in found) for call, found in time_calls(calls, turns, name).items()}
        pairs = tuple(pair for pair in PAIRS if pair.ours in times)
        yield Contest(name, "us of CPU time", times, pairs, note=f"{weights:,} weights")
        files = [f"{backend}-{scheme}" for backend in ("litert", "onnx") for scheme in ("fp32", "int8")]
        sizes = {file: (float(len(deployed[file].artefact.model)),) for file in files}
        yield Contest(f"{name}, files", "bytes", sizes)
        if name == "III":
            yield compare_with_memory(Path(folder) / "c-int8", weights, turns)


def compare_with_memory(artefact: Path, weights: int, turns: Turns) -> Contest:
    """The C harness against the fastest read of as many bytes as the weights have."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "read.so"
        command = [find_compiler(), "-O3", "-march=native", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
        subprocess.run(command, input=READ_LOOP, text=True, check=True)
        read = ctypes.CDLL(str(library)).read_seconds
    read.restype = ctypes.c_double
    words, sink = np.ones(weights // 8, np.int64), np.zeros(1, np.int64)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (words, sink)]
    subprocess.run(["make", "-s", "harness"], cwd=artefact, check=True)  # noqa: S607
    harness = ["./harness", "golden.safetensors", str(HARNESS_CALLS)]

    def time_both() -> dict[str, float]:
        seconds = read(pointers[0], ctypes.c_long(len(words)), ctypes.c_long(READ_ROUNDS), pointers[1])
        done = subprocess.run(harness, cwd=artefact, capture_output=True, check=True)
        return {"reading": 1e6 * seconds, "harness": 1e-3 * json.loads(done.stdout)["p50_ns"]}

    taken = [turns.journal.recall(time_both, "reading", number) for number in range(READS)]
    rounds = {name: tuple(each[name] for each in taken) for name in ("harness", "reading")}
    return Contest("III, beside reading its weights", "us", rounds, (Pair("harness", "reading", 0.7),))


def compare(turns: Turns) -> Iterator[Contest]:
    """On one net or on all."""
    import torch

    torch.set_num_threads(1)
    nets = ("I",) if turns.options.quick else (*HIDDEN, NATURE)
    for name in (turns.options.net,) if turns.options.net else nets:
        yield from compare_net(name, turns)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What is compared."""
    parser.add_argument("--net", choices=(*HIDDEN, NATURE), help="Default: all.")


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 30, add_options=add_options))
