"""Mixed bits: layers whose weights do with 4 or 2 bits get them, as far as the return allows.

Order comes from decisions: of every layer alone at fewer bits, with corrected biases. How far that order may be
followed comes from play on validation seeds, by bisection: fewer bits in more layers are taken to return no more.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from quarl_bench.errors import SpecError
from quarl_bench.evaluation.protocol import list_validation_seeds
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.ladder import MIXED, find_unfit
from quarl_bench.repairing.search import list_rounds
from quarl_bench.repairing.workbench import Attempt, Workbench

STEPS = 4, 2  # bits below the scheme's own
BIAS_BYTES = 4

Bits = tuple[int, ...]  # of the weights, layer by layer


def count_bytes(policy: IntegerPolicy) -> int:
    """Bytes of weights packed at their own bits, each layer in whole bytes, and of 32-bit biases."""
    return sum(
        -(-layer.weight.size * layer.weight_format.bit_width // 8) + BIAS_BYTES * len(layer.bias)
        for layer in policy.net.layers
    )


@dataclass(frozen=True)
class Lowering:
    """One layer's weights from some bits to fewer: what it saves, and how much regret it adds."""

    layer: int
    bits: int
    saved: int  # bits of memory
    regret: float


def order_lowerings(sizes: tuple[int, ...], start: int, regrets: dict[tuple[int, int], float]) -> Iterator[Bits]:
    """Bits of all layers, a step lower each time: the step of least added regret for what it saves comes first.

    `sizes` are the layers' weights; `regrets` has that of every layer alone at every step, and under (layer, start)
    the regret without any.
    """
    now = [start] * len(sizes)
    widths = [bits for bits in STEPS if bits < start]
    while True:
        open_steps = [
            Lowering(layer, below, sizes[layer] * (bits - below), regrets[layer, below] - regrets[layer, bits])
            for layer, bits in enumerate(now)
            for below in [bits for bits in widths if bits < now[layer]][:1]
        ]
        if not open_steps:
            return
        best = min(open_steps, key=lambda step: (max(step.regret, 0.0) / step.saved, -step.saved))
        now[best.layer] = best.bits
        yield tuple(now)


def lower_bits(
    bench: Workbench, scheme: Scheme, keeps: Callable[[Attempt], bool], deadline: float
) -> tuple[Attempt, ...]:
    """Played attempts of `scheme` with fewer bits in some layers, in the order in which they were tried.

    `keeps` says whether one keeps enough of the return; the last of those that do has the fewest bytes. After
    `deadline`, a time of the monotonic clock, none is begun.
    """
    start = scheme.bit_width
    sizes = tuple(layer.weight.size for layer in bench.policy.net.layers)
    plain = bench.correct(scheme).regret
    regrets = {(layer, start): plain for layer in range(len(sizes))}
    for layer in range(len(sizes)):
        for bits in (b for b in STEPS if b < start):
            alone = (*[start] * layer, bits, *[start] * (len(sizes) - layer - 1))
            regrets[layer, bits] = bench.correct(lower(scheme, alone)).regret
    path = list(order_lowerings(sizes, start, regrets))
    seeds = list_validation_seeds(list_rounds(bench.subject)[-1].episodes)
    low, high, tried = 0, len(path), []  # `low` steps are known to keep enough, more than `high` are taken not to
    while low < high and time.monotonic() < deadline:
        middle = (low + high + 1) // 2
        attempt = bench.learn_rounding(lower(scheme, path[middle - 1]), MIXED)
        reason = find_unfit(attempt.candidate.policy, bench.target)
        if reason:
            bench.unfit[attempt.candidate.name] = reason
        else:
            tried.append(bench.play(attempt, seeds))
        if not reason and keeps(tried[-1]):
            low = middle
        else:
            high = middle - 1
    return tuple(tried)


def check_spare(scheme: Scheme) -> None:
    """SpecError where `scheme` has no bits to take away."""
    if scheme.bit_width <= min(STEPS):
        raise SpecError(f"scheme {scheme.name!r} has no bits to take away; begin with more than {min(STEPS)}")


def lower(scheme: Scheme, bits: Bits) -> Scheme:
    """`scheme` with `bits` of weights in its layers."""
    return replace(scheme, layer_bits=bits)
