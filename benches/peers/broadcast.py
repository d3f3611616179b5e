"""What a broadcast costs by the policy's size, from 10 kB to 50 MB: fp32, fp16 and int8; plain, zstd, changes (delta).

`python benches/peers/broadcast.py [--rounds N]`, one thread. The second of two policies is sent; its weights moved from
the first by normal steps of SD 1e-3, as a hundred steps of Adam at 1e-4 in random directions move them: simulated.
Medians of CPU milliseconds to make the message and to take it up to new weights, its bytes, and those at 1 Gbit/s.
"""

import argparse
import itertools
import os
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from quarl_bench.actorq.delta import Unpacker, pack_delta
from quarl_bench.actorq.message import Bytes, build, compress, deserialize, encode
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net

INPUTS, OUTPUTS = 17, 6
WIDTHS = (30, 100, 330, 1050, 2500)  # of three hidden layers
MOVED = 1e-3
GIGABIT = 125e6  # bytes per second


def make_policies(width: int) -> tuple[PolicyNet, PolicyNet]:
    """A random policy, and the same a hundred updates later."""
    rng, sizes = np.random.default_rng(0), (INPUTS, width, width, width, OUTPUTS)
    first, second = [], []
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weight = (rng.standard_normal((outputs, inputs)) / np.sqrt(inputs)).astype(np.float32)
        layer = Linear(weight, np.zeros(outputs, dtype=np.float32), Activation.RELU if index < 3 else Activation.NONE)
        first.append(layer)
        second.append(replace(layer, weight=(weight + MOVED * rng.standard_normal(weight.shape)).astype(np.float32)))
    ones = np.ones(OUTPUTS, dtype=np.float32)
    head, transform = ActionHead(HeadKind.TANH, -ones, ones), ObservationTransform((INPUTS,))
    one, two = (PolicyNet(transform, Net((INPUTS,), tuple(layers)), head) for layers in (first, second))
    return one, two


def time_broadcast(policies: tuple[PolicyNet, PolicyNet], shipped: str, form: str) -> tuple[float, float, int]:
    """(ms to make, ms to take, bytes) of the second policy's message."""
    states = np.random.default_rng(1).standard_normal((64, INPUTS)).astype(np.float32)
    options: dict[str, Any] = {"shipped": shipped, "precision": shipped, "states": states}
    base = encode(policies[0], 0, **options)
    unpacker = Unpacker()
    unpacker.unpack([base])
    begin = time.process_time()
    message: Bytes = encode(policies[1], 1, **options)
    if form == "zstd":
        message = compress(message)
    elif form == "delta":
        changes = pack_delta(message, base, shipped)
        message = message if changes is None else changes
    made = time.process_time()
    build(deserialize(unpacker.unpack([message])))
    return 1e3 * (made - begin), 1e3 * (time.process_time() - made), len(message)


def main() -> None:
    """Print a row of the table for each size, precision and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="Default: 5.")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {options.rounds} rounds")
    print("| hidden | shipped | form | bytes | make, ms | take, ms | at 1 Gbit/s, ms |\n|---|---|---|---|---|---|---|")
    for width in WIDTHS:
        policies = make_policies(width)
        for shipped, form in itertools.product(("fp32", "fp16", "int8"), ("plain", "zstd", "delta")):
            rounds = [time_broadcast(policies, shipped, form) for _ in range(options.rounds)]
            made, taken, size = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(f"| 3 x {width:,} | {shipped} | {form} | {size:,.0f} | {made:.1f} | {taken:.1f} | "
                  f"{1e3 * size / GIGABIT:.1f} |")  # fmt: skip


if __name__ == "__main__":
    main()
