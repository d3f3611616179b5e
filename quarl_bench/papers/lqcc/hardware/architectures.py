"""LQCC's selected policies (its Table 1) as architectures, and what its Table 3 says about them on an XC7A15T.

`in_lanes` states the input's interface: all values at once, or eight 4-bit values (32 bits) a cycle for Humanoid, whose
observation no bus carries at once.
"""

from dataclasses import dataclass

import numpy as np

from quarl_bench.errors import SpecError
from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform
from quarl_bench.policies.policy import IntegerPolicy
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Linear
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.requantize import Requantization

SAMPLES = 2000  # random inputs from which the scales of random weights are taken


@dataclass(frozen=True)
class Architecture:
    """Widths and bits of a policy; `paper_cycles` at 100 MHz and `actions_per_second` are of LQCC's FINN build."""

    name: str
    widths: tuple[int, ...]
    input_bits: int
    core_bits: int
    output_bits: int
    actions_per_second: float  # the target that FINN folds for
    paper_cycles: int
    in_lanes: int | None = None  # None: all values at once


ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("halfcheetah", (17, 256, 256, 6), 8, 3, 8, 1e4, 24_320),
        Architecture("walker2d", (17, 128, 128, 6), 3, 2, 8, 1e4, 16_220),
        Architecture("humanoid", (376, 16, 16, 17), 4, 3, 8, 1e5, 1_540, in_lanes=8),
        Architecture("ant", (27, 64, 64, 8), 3, 2, 8, 1e6, 230),
        Architecture("hopper", (11, 16, 16, 3), 6, 2, 8, 1e7, 21),
        Architecture("reference", (17, 256, 256, 6), 8, 4, 8, 1e4, 24_330),  # HalfCheetah's 8-4-8
        Architecture("eightbit", (17, 256, 256, 6), 8, 8, 8, 1e4, 0),  # did not fit, so there is no latency
    )
}


def find_architecture(name: str) -> Architecture:
    """The architecture called `name`; SpecError with the known ones otherwise."""
    if name not in ARCHITECTURES:
        raise SpecError(f"unknown architecture {name!r}; known are {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def draw_policy(architecture: Architecture, seed: int = 0) -> IntegerPolicy:
    """`draw_net` with actions in [-1, 1] behind a tanh, as LQCC's agents have them."""
    bound = np.ones(architecture.widths[-1], dtype=np.float32)
    transform = ObservationTransform((architecture.widths[0],))
    return IntegerPolicy(transform, draw_net(architecture, seed), ActionHead(HeadKind.TANH, -bound, bound))


def draw_net(architecture: Architecture, seed: int = 0) -> IntegerNet:
    """Random weights, uniform over all levels: denser than trained ones, so sizes are a worst case.

    Hidden activations are unsigned behind a ReLU and outputs signed, with scales under which about all levels occur.
    """
    rng, layers = np.random.default_rng(seed), []
    input_format = IntegerFormat(architecture.input_bits)
    source = first = ActivationFormat(input_format, np.float32(10 / 2 ** (architecture.input_bits - 1)), 0)
    weights = IntegerFormat(architecture.core_bits, narrow_range=True)
    q = rng.integers(input_format.minimum, input_format.maximum + 1, (SAMPLES, architecture.widths[0]))
    last = len(architecture.widths) - 2
    for index, outputs in enumerate(architecture.widths[1:]):
        weight = rng.integers(weights.minimum, weights.maximum + 1, (outputs, q.shape[1])).astype(np.int8)
        scale = np.array([1 / np.sqrt(q.shape[1]) / weights.maximum], dtype=np.float32)
        sums = q @ weight.T.astype(np.int64)
        bias = np.rint(rng.normal(0, 0.3 * sums.std(), outputs)).astype(np.int32)
        integers = IntegerFormat(architecture.output_bits if index == last else architecture.core_bits, index == last)
        top = np.percentile(np.abs(sums + bias), 99.0)
        step = np.float32(source.scale * scale[0] * top / integers.maximum)
        activation = Activation.NONE if index == last else Activation.RELU
        output = ActivationFormat(integers, step, 0)
        layers.append(QuantizedLayer(Linear, activation, 1, weight, scale, weights, bias, output))
        q = np.clip(np.rint((sums + bias) * (source.scale * scale[0] / step)), layers[-1].lowest, integers.maximum)
        q, source = q.astype(np.int64), output
    return IntegerNet((architecture.widths[0],), first, tuple(layers), Requantization.THRESHOLDS)
