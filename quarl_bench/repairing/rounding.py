"""Learned rounding: every weight is rounded up or down, whichever serves its layer's sums.

AdaRound (Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization", section 3): layer by
layer, on states that the policy visits, with the layers before it in integers already. Scales stay. Biases are
corrected behind every layer, so that an error of the mean is left to them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quarl_bench.policies.head import HeadKind
from quarl_bench.policies.policy import IntegerPolicy, Observations, PolicyNet
from quarl_bench.quantization.activations import ELEMENTWISE
from quarl_bench.quantization.net import Layer
from quarl_bench.quantization.parameters import QuantizedLayer
from quarl_bench.repairing.bias import correct_layer, exchange_layer

STRETCH = -0.1, 1.1  # of the sigmoid, so that 0 and 1 are reached (equation 23)
LEARNING_RATE = 0.01
FREE = 0.2  # of the steps, before weights are drawn to 0 and 1
SHARPEST, SOFTEST = 2.0, 20.0  # the exponent of equation 24, from the second to the first
PULL = 10.0, 100.0  # of equation 24, first and last, against the error, whose unit is that of rounding to nearest


Measure = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Size:
    """How long a layer learns: steps of Adam, and states in each."""

    steps: int
    batch: int


NUMBERS, IMAGES = Size(1_000, 256), Size(300, 32)


@dataclass(frozen=True, eq=False)
class Sample:
    """What a layer reads (n, ...) in integers, dequantized, the sums (n, ...) that fp32 has there, and their error."""

    inputs: Tensor
    sums: Tensor
    compare: Measure


def learn_rounding(form: PolicyNet, rounded: IntegerPolicy, states: Observations, seed: int = 0) -> IntegerPolicy:
    """`rounded` with weights rounded as serves the sums of `form` in raw `states` (n, ...).

    `form` is the fp32 policy in the form that was rounded (`PolicyNet.rewrite`). Deterministic for a seed. A layer
    keeps its weights where learning does not lower the error.
    """
    x = form.transform.apply(states)
    q, values, net = rounded.net.input.quantize(x), torch.from_numpy(x), rounded.net
    draws, size = np.random.default_rng(seed), IMAGES if form.transform.image else NUMBERS
    for index, (layer, (weight, bias)) in enumerate(zip(form.net.layers, form.net.tensors, strict=True)):
        with torch.inference_mode():
            sums = layer.affine(values, weight, bias)
            values = ELEMENTWISE[layer.activation].apply(sums)
        inputs = torch.from_numpy(net.sources[index].dequantize(q).astype(np.float32))
        decides = form.head.kind in (HeadKind.ARGMAX, HeadKind.PARTS) and index == len(net.layers) - 1
        measure = compare_outputs(form.head.list_choices(len(layer.bias))) if decides else compare_sums(layer)
        sample = Sample(inputs, sums.clone(), measure)
        integers = Rounding(layer, net.layers[index]).learn(sample, size, draws)
        net = exchange_layer(net, index, replace(net.layers[index], weight=integers))
        net = correct_layer(net, index, q, sums.numpy())
        q = net.run_layer(index, q)
    return replace(rounded, net=net)


def compare_sums(layer: Layer) -> Measure:
    """Mean squared error behind the layer's activation: what a ReLU cuts off is no error (equation 25)."""
    apply = ELEMENTWISE[layer.activation].apply
    return lambda found, wanted: (apply(found) - apply(wanted)).square().mean()


def compare_outputs(sizes: tuple[int, ...]) -> Measure:
    """Mean squared error of outputs of which the largest of each part decides: what a part shares changes nothing."""

    def compare(found: Tensor, wanted: Tensor) -> Tensor:
        parts = torch.split(found - wanted, list(sizes), dim=1)
        return torch.cat([error - error.mean(dim=1, keepdim=True) for error in parts], dim=1).square().mean()

    return compare


class Rounding:
    """One layer's weights, each between two integers."""

    def __init__(self, layer: Layer, rounded: QuantizedLayer) -> None:
        self._layer, self._nearest, integers = layer, rounded.weight, rounded.weight_format
        scale = rounded.weight_scale.reshape((-1,) + (1,) * (rounded.weight.ndim - 1))
        self._scale, self._highest = torch.from_numpy(scale), float(integers.maximum)
        steps = torch.from_numpy(np.clip(layer.weight / scale, integers.minimum, integers.maximum))
        self._floor = torch.floor(steps)
        low, high = STRETCH
        self._logits = torch.logit((steps - self._floor - low) / (high - low)).requires_grad_()

    def learn(self, sample: Sample, size: Size, draws: np.random.Generator) -> NDArray[np.int8]:
        """The integers of least error on all of `sample`, learned or nearest."""
        nearest = self._measure(sample, torch.from_numpy(self._nearest.astype(np.float32)))
        if nearest == 0.0:
            return self._nearest
        optimizer = torch.optim.Adam([self._logits], lr=LEARNING_RATE)
        for step in range(size.steps):
            rows = torch.from_numpy(draws.integers(len(sample.inputs), size=size.batch))
            up = self._round_softly()
            some = Sample(sample.inputs[rows], sample.sums[rows], sample.compare)
            loss = self._compare(some, self._floor + up) / nearest
            progress = (step / size.steps - FREE) / (1 - FREE)
            if progress >= 0:
                exponent = SHARPEST + (SOFTEST - SHARPEST) * (1 + np.cos(np.pi * progress)) / 2
                pull = PULL[0] * (PULL[1] / PULL[0]) ** progress
                loss = loss + pull * (1 - (2 * up - 1).abs().pow(exponent)).mean()
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
        with torch.no_grad():
            learned = torch.clamp(self._floor + (self._round_softly() >= 0.5), max=self._highest)
        return self._nearest if self._measure(sample, learned) >= nearest else learned.numpy().astype(np.int8)

    def _round_softly(self) -> Tensor:
        """What is added to the lower integer: between 0 and 1, and both are reached."""
        low, high = STRETCH
        return torch.clamp(torch.sigmoid(self._logits) * (high - low) + low, 0.0, 1.0)

    def _compare(self, sample: Sample, integers: Tensor) -> Tensor:
        """The error of `integers`, but for that of each neuron's mean, which its bias takes back."""
        weight = torch.clamp(integers, max=self._highest) * self._scale
        found = self._layer.affine(sample.inputs, weight, torch.zeros(len(weight)))
        axes = (0, *range(2, found.ndim))
        return sample.compare(found - (found - sample.sums).mean(dim=axes, keepdim=True), sample.sums)

    def _measure(self, sample: Sample, integers: Tensor) -> float:
        with torch.no_grad():
            return float(self._compare(sample, integers))
