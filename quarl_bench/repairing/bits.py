"""Mixed bits: layers whose weights do with 4 or 2 bits get them, as far as the return allows.

The order comes from decisions: of every layer alone at fewer bits, with corrected biases. Whether a step stands comes
from play on validation seeds; a layer that fails stays as it was.
"""

import math
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from quarl_bench.errors import SpecError
from quarl_bench.evaluation.protocol import list_validation_seeds
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.repairing.candidate import make_candidate
from quarl_bench.repairing.ladder import MIXED, find_unfit
from quarl_bench.repairing.search import list_rounds
from quarl_bench.repairing.workbench import Attempt, Workbench

STEPS = 4, 2  # bits below the scheme's own
BIAS_BYTES = 4

Bits = tuple[int, ...]  # of the weights, layer by layer
Regrets = dict[tuple[int, int], float]  # by layer and bits


def count_bytes(policy: IntegerPolicy) -> int:
    """Bytes of weights packed at their own bits, each layer in whole bytes, and of 32-bit biases."""
    return sum(
        -(-layer.weight.size * layer.weight_format.bit_width // 8) + BIAS_BYTES * len(layer.bias)
        for layer in policy.net.layers
    )


def choose_step(sizes: Sequence[int], now: Bits, done: Container[int], regrets: Regrets) -> tuple[int, Bits] | None:
    """The layer to be lowered next, and the bits of all layers then; None where no step is left.

    It is the step of least added regret for the memory that it saves. `sizes` are the layers' weights, `done` the
    layers that stay as they are, `regrets` those of every layer alone at its bits, by layer and bits.
    """
    best, least = None, (math.inf, 0)
    for layer, bits in enumerate(now):
        below = next((step for step in STEPS if step < bits), None)
        if layer in done or below is None:
            continue
        saved, added = sizes[layer] * (bits - below), max(regrets[layer, below] - regrets[layer, bits], 0.0)
        if (added / saved, -saved) < least:
            best, least = (layer, (*now[:layer], below, *now[layer + 1 :])), (added / saved, -saved)
    return best


def lower_bits(
    bench: Workbench, scheme: Scheme, keeps: Callable[[Attempt], bool], deadline: float
) -> tuple[Attempt, ...]:
    """Played attempts of `scheme` with fewer bits in some layers, in the order in which they were tried.

    `keeps` says whether one keeps enough of the return; the last of those that do has the fewest bytes. After
    `deadline`, a time of the monotonic clock, none is begun.
    """
    sizes = [layer.weight.size for layer in bench.policy.net.layers]
    now = (scheme.bit_width,) * len(sizes)
    regrets, seeds = compare_layers(bench, scheme), list_validation_seeds(list_rounds(bench.subject)[-1].episodes)
    done: set[int] = set()
    tried: list[Attempt] = []
    while (step := choose_step(sizes, now, done, regrets)) is not None and time.monotonic() < deadline:
        layer, bits = step
        attempt = bench.learn_rounding(make_candidate(bench.subject, lower(scheme, bits)), MIXED)
        reason = find_unfit(attempt.candidate.policy, bench.target)
        if reason:
            bench.unfit[attempt.candidate.name] = reason
        else:
            tried.append(bench.play(attempt, seeds))
        if not reason and keeps(tried[-1]):
            now = bits
        else:
            done.add(layer)
    return tuple(tried)


def compare_layers(bench: Workbench, scheme: Scheme) -> Regrets:
    """The regret of every layer alone at its own and at fewer bits, with corrected biases."""
    count, start = len(bench.policy.net.layers), scheme.bit_width
    found = dict.fromkeys(((layer, start) for layer in range(count)), bench.correct(scheme).regret)
    for layer in range(count):
        for bits in (step for step in STEPS if step < start):
            alone = (*[start] * layer, bits, *[start] * (count - layer - 1))
            found[layer, bits] = bench.correct(lower(scheme, alone)).regret
    return found


def check_spare(scheme: Scheme) -> None:
    """SpecError where `scheme` has no bits to take away."""
    if scheme.bit_width <= min(STEPS):
        raise SpecError(f"scheme {scheme.name!r} has no bits to take away; begin with more than {min(STEPS)}")


def lower(scheme: Scheme, bits: Bits) -> Scheme:
    """`scheme` with `bits` of weights in its layers."""
    return replace(scheme, layer_bits=bits)
