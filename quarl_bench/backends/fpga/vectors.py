"""Inputs that find what random ones do not: saturated ones, sums on a threshold or one below, and equal sums."""

from collections.abc import Sequence

import numpy as np

from quarl_bench.backends.fpga.rtl.stage import Stage
from quarl_bench.quantization.affine import Integers

NEAR_THRESHOLD = 0.2  # share of the drawn inputs that aim at a threshold of the first layer


def draw_inputs(stages: Sequence[Stage], count: int, seed: int = 0) -> Integers:
    """`count` input integers (n, inputs): extremes, ties, and uniformly random ones in the input's format."""
    first, rng = stages[0], np.random.default_rng(seed)
    extremes = [np.full(first.inputs, value) for value in (first.low, first.high, 0)]
    for sign in (1, -1):  # what drives a few neurons as far as they go
        extremes += [np.where(sign * row > 0, first.high, first.low) for row in first.weight[:8]]
    draw = _draw_near_tie if first.wide else _draw_near_threshold
    ties = [draw(first, rng) for _ in range(round(NEAR_THRESHOLD * count))]
    drawn = rng.integers(first.low, first.high + 1, (count, first.inputs))
    every = np.concatenate([np.array(extremes), *([np.array(ties)] if ties else []), drawn])
    return np.asarray(every[:count], dtype=np.int64)


def _draw_near_threshold(stage: Stage, rng: np.random.Generator) -> Integers:
    """Random inputs, changed until one neuron's sum is a threshold, or one less; as near as its weights allow."""
    neuron = rng.integers(stage.outputs)
    weight = stage.weight[neuron].astype(np.int64)
    return _draw_near(weight, rng.choice(stage.thresholds[neuron]) - rng.integers(2), stage, rng)


def _draw_near_tie(stage: Stage, rng: np.random.Generator) -> Integers:
    """The same until the sums of two neurons are equal, or one apart."""
    assert stage.offsets is not None  # noqa: S101  (for the type checker: a wide stage has them)
    one, other = rng.choice(stage.outputs, 2, replace=stage.outputs == 1)
    weight = stage.weight[one].astype(np.int64) - stage.weight[other]
    return _draw_near(weight, stage.offsets[other] - stage.offsets[one] - rng.integers(2), stage, rng)


def _draw_near(weight: Integers, target: int, stage: Stage, rng: np.random.Generator) -> Integers:
    """Random inputs (inputs,), changed until their product with `weight` is `target`, or as near as it comes."""
    q = rng.integers(stage.low, stage.high + 1, stage.inputs)
    for index in rng.permutation(np.flatnonzero(weight)):
        missing = target - q @ weight
        change = int(missing / weight[index])  # towards zero, so that the sum never passes the target
        q[index] = np.clip(q[index] + change, stage.low, stage.high)
    return q
