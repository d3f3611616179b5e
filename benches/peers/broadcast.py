"""What a broadcast costs by the policy's size, from 10 kB to 50 MB: fp32, fp16 and int8; plain, zstd, changes (delta).

One thread. The second of two policies is sent; its weights moved from the first by normal steps of SD 1e-3, as a
hundred steps of Adam at 1e-4 in random directions move them: simulated. CPU milliseconds to make the message and to
take it up to new weights, and its bytes.
"""

import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from turns import Script, Turns, main, pick

from quarl_bench.actorq.delta import Unpacker, pack_delta
from quarl_bench.actorq.message import Bytes, build, compress, deserialize, encode
from quarl_bench.judging.times.contest import Contest
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net

INPUTS, OUTPUTS = 17, 6
WIDTHS = (30, 100, 330, 1050, 2500)  # of three hidden layers
MOVED = 1e-3
SHIPPED, FORMS = ("fp32", "fp16", "int8"), ("plain", "zstd", "delta")


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


def compare(turns: Turns) -> Iterator[Contest]:
    """Of each size, every precision in every form: bytes, and the costs at both ends."""
    ways = {f"{shipped} {form}": (shipped, form) for shipped, form in itertools.product(SHIPPED, FORMS)}
    for width in WIDTHS[:2] if turns.options.quick else WIDTHS:
        policies = make_policies(width)
        taken = turns.repeat({name: partial(time_broadcast, policies, *way) for name, way in ways.items()}, width)
        for column, (what, unit) in enumerate((("to make", "CPU ms"), ("to take", "CPU ms"), ("sent", "bytes"))):
            yield Contest(f"3 x {width:,}, {what}", unit, pick(taken, column))


if __name__ == "__main__":
    main(Script(__file__, __doc__, compare, 3))
