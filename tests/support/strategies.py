"""Hypothesis strategies and small builders that several test files share."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from quarl_bench.policies.head import ActionHead, HeadKind
from quarl_bench.policies.observation import Normalization, ObservationTransform
from quarl_bench.policies.policy import PolicyNet, Visited
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Floats, Linear, Net
from quarl_bench.quantization.recurrent.cells import GATES, Cell, CellKind

SEEDS = st.integers(0, 2**32 - 1)
SPREADS = st.sampled_from([1e-3, 0.1, 1.0, 30.0])


def normal(rng: np.random.Generator, *shape: int, spread: float = 1.0) -> Floats:
    """Normal float32 numbers."""
    return (rng.standard_normal(shape) * spread).astype(np.float32)


def make_net(
    *widths: int, activation: Activation = Activation.RELU, seed: int = 0, spread: float = 1.0, bias: float = 0.3
) -> Net:
    """A fully connected net of these widths, without activation behind the last layer."""
    rng = np.random.default_rng(seed)
    last = len(widths) - 2
    return Net(
        (widths[0],),
        tuple(
            Linear(
                normal(rng, outputs, inputs, spread=spread / np.sqrt(inputs)),
                normal(rng, outputs, spread=bias * spread),
                Activation.NONE if index == last else activation,
            )
            for index, (inputs, outputs) in enumerate(pairwise(widths))
        ),
    )


@st.composite
def perceptrons(draw: st.DrawFn) -> Net:
    """Small fully connected nets, every layer with its own activation and spread."""
    rng = np.random.default_rng(draw(SEEDS))
    widths = draw(st.lists(st.integers(1, 12), min_size=2, max_size=4))
    layers = tuple(
        Linear(
            normal(rng, outputs, inputs, spread=draw(SPREADS)),
            normal(rng, outputs, spread=draw(SPREADS)),
            draw(st.sampled_from(Activation)),
        )
        for inputs, outputs in pairwise(widths)
    )
    return Net((widths[0],), layers)


@st.composite
def convolutions(draw: st.DrawFn) -> Net:
    """Stacks of one or two convolutions and a fully connected layer."""
    rng = np.random.default_rng(draw(SEEDS))
    shape: tuple[int, ...] = (draw(st.integers(1, 3)), draw(st.integers(5, 9)), draw(st.integers(5, 9)))
    input_shape, layers = shape, []
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.integers(1, min(3, *shape[1:])))
        outputs, activation = draw(st.integers(1, 4)), draw(st.sampled_from(Activation))
        weight = normal(rng, outputs, shape[0], kernel, kernel, spread=draw(SPREADS))
        layer = Conv2d(weight, normal(rng, outputs), draw(st.integers(1, 2)), activation)
        layers.append(layer)
        shape = layer.output_shape(shape)
    layers.append(Linear(normal(rng, 3, int(np.prod(shape)), spread=0.2), normal(rng, 3), Activation.NONE))
    return Net(input_shape, tuple(layers))


def inputs_of(net: Net, count: int, seed: int = 0, spread: float = 1.0) -> Floats:
    """Normal inputs of a net."""
    return normal(np.random.default_rng(seed), count, *net.input_shape, spread=spread)


def make_policy(kind: HeadKind = HeadKind.ARGMAX, *, normalized: bool = False, seed: int = 0) -> PolicyNet:
    """Four observations to two actions, of parts to a choice of two and one of three."""
    bounds = {"low": np.float32([-1, -2]), "high": np.float32([1, 3])}
    continuous = kind in (HeadKind.CLIP, HeadKind.TANH)
    head = ActionHead(kind, **(bounds if continuous else {}), sizes=(2, 3) if kind is HeadKind.PARTS else ())
    statistics = Normalization(np.arange(4.0), np.arange(1.0, 5.0)) if normalized else None
    transform = ObservationTransform((4,), normalization=statistics)
    outputs = sum(head.sizes) or 2
    return PolicyNet(transform, make_net(4, 8, outputs, activation=Activation.TANH, seed=seed), head)


def make_linear_policy(weight: NDArray[Any], bounds: tuple[float, float] | None = None) -> PolicyNet:
    """One layer and no bias: a controller whose actions can be read off its weights."""
    outputs, inputs = weight.shape
    layer = Linear(np.float32(weight), np.zeros(outputs, np.float32))
    head = ActionHead(HeadKind.ARGMAX)
    if bounds is not None:
        low, high = (np.full(outputs, bound, np.float32) for bound in bounds)
        head = ActionHead(HeadKind.CLIP, low, high)
    return PolicyNet(ObservationTransform((inputs,)), Net((inputs,), (layer,)), head)


def make_recurrent(
    kind: CellKind, inputs: int = 4, width: int = 8, outputs: int = 2, seed: int = 0, *, before: int = 0
) -> PolicyNet:
    """A recurrent policy of logits; `before` is the width of a layer in front of its cell."""
    rng = np.random.default_rng(seed)
    layers, read = [], inputs
    if before:
        layers, read = [Linear(normal(rng, before, inputs), normal(rng, before), Activation.ELU)], before
    gates = GATES[kind] * width
    spread = 1 / np.sqrt(width)
    layers += [
        Linear(normal(rng, gates, read, spread=spread), normal(rng, gates, spread=spread)),
        Linear(normal(rng, gates, width, spread=spread), normal(rng, gates, spread=spread)),
        Linear(normal(rng, outputs, width), normal(rng, outputs, spread=0.1)),
    ]
    net = Net((inputs,), tuple(layers), (Cell(kind, len(layers) - 3),))
    return PolicyNet(ObservationTransform((inputs,)), net, ActionHead(HeadKind.ARGMAX))


def wander(policy: PolicyNet, steps: int, seed: int = 0, count: int = 4) -> Visited:
    """`count` sequences of random observations, and the policy's state in each of them, step by step."""
    rng = np.random.default_rng(seed)
    state, seen = policy.initial_state(count), []
    for _ in range(steps):
        seen.append(Visited(normal(rng, count, *policy.transform.shape, spread=2.0), state))
        _, state = policy.act(seen[-1].observations, state)
    return Visited.join(seen)
