"""Small policies on images, and on images among vectors."""

from dataclasses import replace

import numpy as np

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import ObservationTransform, Part, normalize_parts
from quarl_bench.policies.policy import PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.branches import Branch
from quarl_bench.quantization.net import Conv2d, Floats, Linear, Net
from quarl_bench.quantization.recurrent.cells import GATES, Cell, CellKind
from tests.support.strategies import normal


def make_image_policy() -> PolicyNet:
    rng = np.random.default_rng(3)
    layers = (
        Conv2d(normal(rng, 6, 2, 3, 3, spread=0.3), normal(rng, 6), 2, Activation.RELU),
        Conv2d(normal(rng, 5, 6, 2, 2, spread=0.3), normal(rng, 5), 1, Activation.TANH),
        Linear(normal(rng, 3, 5 * 3 * 2, spread=0.2), normal(rng, 3)),
    )
    return PolicyNet(ObservationTransform((2, 9, 7), image=True), Net((2, 9, 7), layers), ActionHead(HeadKind.ARGMAX))


PARTS = (
    Part("speed", (3,)),
    Part("camera", (2, 9, 7), pixels=True),
    Part("map", (1, 6, 6), pixels=True),
    Part("k", (4,)),
)


def make_parted_policy(kind: HeadKind = HeadKind.ARGMAX, seed: int = 3) -> PolicyNet:
    """A small policy on a vector, two images and four more numbers, the images through layers of their own."""
    rng = np.random.default_rng(seed)
    layers = (
        Conv2d(normal(rng, 6, 2, 3, 3, spread=0.3), normal(rng, 6), 2, Activation.RELU),
        Conv2d(normal(rng, 5, 6, 2, 2, spread=0.3), normal(rng, 5), 1, Activation.TANH),
        Linear(normal(rng, 8, 5 * 3 * 2, spread=0.3), normal(rng, 8), Activation.RELU),
        Conv2d(normal(rng, 4, 1, 3, 3, spread=0.5), normal(rng, 4), 1, Activation.RELU),
        Linear(normal(rng, 6, 4 * 4 * 4, spread=0.2), normal(rng, 6)),
        Linear(normal(rng, 12, 3 + 8 + 6 + 4, spread=0.3), normal(rng, 12), Activation.TANH),
        Linear(normal(rng, 3, 12, spread=0.3), normal(rng, 3)),
    )
    branches = (Branch((3,)), Branch((2, 9, 7), 3), Branch((1, 6, 6), 2), Branch((4,)))
    width = sum(part.width for part in PARTS)
    head = ActionHead(kind) if kind is HeadKind.ARGMAX else ActionHead(kind, np.float32([-1] * 3), np.float32([1] * 3))
    transform = ObservationTransform((width,), normalization=normalize_parts(PARTS))
    return PolicyNet(transform, Net((width,), layers, branches=branches), head)


def make_parted_memory(kind: CellKind) -> PolicyNet:
    """The same with a cell in the place of its hidden layer."""
    plain, rng, width = make_parted_policy(), np.random.default_rng(8), 6
    gates = [normal(rng, GATES[kind] * width, inputs, spread=0.3) for inputs in (21, width)]
    cell = (Linear(weight, normal(rng, len(weight), spread=0.3)) for weight in gates)
    last = Linear(normal(rng, 3, width), normal(rng, 3, spread=0.1))
    layers = (*plain.net.layers[:5], *cell, last)
    return replace(plain, net=replace(plain.net, layers=layers, cells=(Cell(kind, 5),)))


def draw_parts(count: int, seed: int = 0) -> Floats:
    """Flat observations of `PARTS`: normal numbers and pixels."""
    rng = np.random.default_rng(seed)
    rows = [
        rng.integers(0, 256, (count, part.width)) if part.pixels else rng.standard_normal((count, part.width)) * 2
        for part in PARTS
    ]
    return np.concatenate(rows, axis=1).astype(np.float32)
