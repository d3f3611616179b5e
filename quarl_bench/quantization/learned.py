"""LQCC's quantizer (section 2.2, equation 1): QDQ(x; s) = s / q_s * clip(round(x / s * q_s), q_min, q_max).

q_s = max(|q_min|, |q_max|), so that a scale s is the largest magnitude and s / q_s one step. Inputs, weights and
outputs are signed, what follows a ReLU is unsigned, biases have 32 bits at the step of input times weight. A weight's
scale is its largest magnitude, also to its gradients. An activation's begins as a moving average of a high percentile
over the first batches and is learned from then on: rounding passes gradients unchanged, a clipped activation passes
none to its input.

The forward runs on whole numbers carried by fp32, with IntegerNet's own requantization, in the same order: it computes
what is deployed, bit by bit, as long as sums stay below 2^24. It is never computed in half precision.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import SMALLEST_SCALE, IntegerFormat
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.net import Floats, Linear, Net, find_norm
from quarl_bench.quantization.parameters import BIAS_LIMIT, ActivationFormat, QuantizedLayer
from quarl_bench.quantization.scheme import Family, Scheme
from quarl_bench.quantization.training.stacked_nets import Tensor, chain, draw_layer, multiply

PERCENTILE = 99.999  # of the magnitudes of a batch
WARM_UP = 300  # batches before a scale is learned
MOMENTUM = 0.1  # weight of the newest batch
BATCH = 256  # inputs of a batch where there is no training


def find_bound(format: IntegerFormat) -> int:
    """q_s, the largest magnitude of an integer."""
    return max(-format.minimum, format.maximum)


class _LearnedNetFunction(torch.autograd.Function):
    """Requantization, then affine maps on whole numbers with a requantization behind each, net by net."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, formats: Sequence[IntegerFormat], first: Tensor, *rest: Tensor) -> Tensor:
        weights, biases, factors = rest[::3], rest[1::3], (first, *rest[2::3])
        width = x.shape[2] if not weights else weights[-1].shape[1]
        result, inputs, steps = torch.empty(*x.shape[:2], width), [], []
        for net in range(len(x)):
            scaled = x[net] * first[net]
            q = scaled.round().clamp_(formats[0].minimum, formats[0].maximum)
            steps.append(scaled)
            for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True), 1):
                inputs.append(q)
                scaled = multiply(q, weight[net], bias[net]).mul_(factors[layer][net])
                q = scaled.round().clamp_(formats[layer].minimum, formats[layer].maximum)
                steps.append(scaled)
            result[net] = q
        if any(ctx.needs_input_grad):
            ctx.inputs, ctx.steps, ctx.formats, ctx.weights, ctx.factors = inputs, steps, formats, weights, factors
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        weights, factors, layers = ctx.weights, ctx.factors, len(ctx.weights)
        of_factors = [torch.empty_like(factor) for factor in factors]
        of_weights = [torch.empty_like(weight) for weight in weights]
        of_biases = [torch.empty(weight.shape[:2]) for weight in weights]
        of_x = []
        for net in range(len(gradients[0])):
            gradient = gradients[0][net]
            for layer in reversed(range(layers + 1)):
                steps, low = ctx.steps[net * (layers + 1) + layer], ctx.formats[layer].minimum
                # Under a ReLU, whose clip is at 0, what is negative passes no gradient even where it rounds to 0.
                limits = low - 0.5 if low < 0 else 0.0, ctx.formats[layer].maximum + 0.5
                passed = torch.ops.aten.hardtanh_backward(gradient, steps, *limits)
                of_factors[layer][net] = torch.dot(passed.view(-1), steps.view(-1)) / factors[layer][net]
                if layer == 0 and not ctx.needs_input_grad[0]:
                    break
                gradient = passed.mul_(factors[layer][net])
                if layer:
                    of_weights[layer - 1][net] = multiply(gradient.T, ctx.inputs[net * layers + layer - 1].T)
                    of_biases[layer - 1][net] = gradient.sum(0)
                    gradient = multiply(gradient, weights[layer - 1][net].T)
            of_x.append(gradient)
        parts = [part for parts in zip(of_weights, of_biases, of_factors[1:], strict=True) for part in parts]
        return (torch.stack(of_x) if ctx.needs_input_grad[0] else None, None, of_factors[0], *parts)


class _RoundBias(torch.autograd.Function):
    """Whole numbers (nets, outputs) of a bias at a step (nets, 1); rounding passes gradients unchanged."""

    @staticmethod
    def forward(ctx: Any, bias: Tensor, step: Tensor) -> Tensor:
        ctx.save_for_backward(bias, step)
        return (bias / step).round_().clamp_(-BIAS_LIMIT, BIAS_LIMIT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        bias, step = ctx.saved_tensors
        of_bias = gradients[0] * (1 / step)
        return of_bias, -(of_bias * bias / step).sum(1, keepdim=True)


class _RoundWeight(torch.autograd.Function):
    """Whole numbers of a weight, and their step, which is that of its largest magnitude.

    What the step does to all of them moves that weight: as a constant, it would outgrow the others until they round
    to 0. Nothing else passes through the step, so this is cheaper than autograd's own way.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, format: IntegerFormat) -> tuple[Tensor, Tensor]:
        step = weight.abs().amax((1, 2), keepdim=True).clamp_min(SMALLEST_SCALE) / find_bound(format)
        ctx.save_for_backward(weight, step)
        ctx.bound = find_bound(format)
        return (weight / step).round_().clamp_(format.minimum, format.maximum), step

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (weight, step), (of_integers, of_step) = ctx.saved_tensors, gradients
        found = of_integers * (1 / step)
        weights, own, nets = weight.flatten(1), found.view(len(found), -1), torch.arange(len(weight))
        of_largest = (of_step.view(-1) - torch.linalg.vecdot(own, weights) / step.view(-1)) / ctx.bound
        largest = weights.abs().argmax(1)
        own[nets, largest] += of_largest * weights[nets, largest].sign()
        return found, None


def run_integer_layers(x: Tensor, formats: Sequence[IntegerFormat], first: Tensor, *rest: Tensor) -> Tensor:
    """Whole numbers (nets, n, outputs) from real numbers (nets, n, inputs).

    `x` is multiplied by `first` (nets, 1, 1) and rounded into the first format. `rest` are, for every further format,
    integer weight (nets, outputs, inputs) and bias (nets, outputs) and the factor (nets, 1, 1) of its requantization.
    """
    result: Tensor = _LearnedNetFunction.apply(x, formats, first, *rest)  # type: ignore[no-untyped-call]
    return result


def round_weight(weight: Tensor, format: IntegerFormat) -> tuple[Tensor, Tensor]:
    """Whole numbers (nets, outputs, inputs) of a weight, and their step (nets, 1, 1); a straight-through estimator."""
    integers, step = _RoundWeight.apply(weight, format)  # type: ignore[no-untyped-call]
    return integers, step


def _round_bias(bias: Tensor, step: Tensor) -> Tensor:
    """Whole numbers (nets, outputs) of a bias at the step (nets, 1, 1) of input times weight."""
    result: Tensor = _RoundBias.apply(bias, step.view(-1, 1))  # type: ignore[no-untyped-call]
    return result


class LearnedScale(nn.Module):
    """The scale of one activation of every net in a stack: watched over `WARM_UP` batches, then a parameter."""

    seen: Tensor

    def __init__(self, format: IntegerFormat, nets: int) -> None:
        super().__init__()
        self.format = format
        self.scale = nn.Parameter(torch.ones(nets, 1, 1))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    @property
    def step(self) -> Tensor:
        """The value of one integer, (nets, 1, 1)."""
        return self.scale.abs().clamp_min(SMALLEST_SCALE) / find_bound(self.format)

    @property
    def observes(self) -> bool:
        """Whether it is still too early to learn."""
        return int(self.seen) < WARM_UP

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Take the magnitudes of a batch (nets, n, width) into the average."""
        magnitudes = x.abs().flatten(1)
        rank = int(PERCENTILE / 100 * magnitudes.shape[1] + 0.5)
        newest = magnitudes.kthvalue(max(rank, 1), dim=1).values.view(-1, 1, 1).clamp_min(1e-6)
        self.scale.lerp_(newest, MOMENTUM) if self.seen else self.scale.copy_(newest)
        self.seen += 1


class LearnedNet(nn.Module):
    """A stack of multilayer perceptrons with ReLUs, quantized in every forward; `widths` from input to output."""

    def __init__(self, widths: Sequence[int], scheme: Scheme, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        if scheme.family is not Family.LEARNED:
            raise QuantizationError(f"{scheme.name} has no learned scales; use i<bits>c<bits>o<bits>")
        self.widths, self.scheme = tuple(widths), scheme
        self.weight_format = IntegerFormat(scheme.bit_width, narrow_range=scheme.narrow_range)
        layers = [draw_layer(i, o, generators) for i, o in pairwise(widths)]
        self.layers = nn.ParameterList([parameter for layer in layers for parameter in layer])
        inner = [IntegerFormat(scheme.bit_width, signed=False)] * (len(layers) - 1)
        formats = [IntegerFormat(scheme.input_bits), *inner, IntegerFormat(scheme.output_bits)]
        self.scales = nn.ModuleList(LearnedScale(chosen, len(generators)) for chosen in formats)

    def forward(self, x: Tensor, *, observe: bool = False) -> Tensor:
        """Outputs (nets, n, outputs) of inputs (nets, n, inputs); `observe` while this is one of the first batches."""
        source, *rest = self._list_scales()
        if observe and source.observes:
            self._observe(x)
        step, parts = source.step, [source.step.reciprocal()]
        for weight, bias, target in zip(self.layers[::2], self.layers[1::2], rest, strict=True):
            q_weight, weight_step = round_weight(weight, self.weight_format)
            product_step, step = step * weight_step, target.step
            parts += [q_weight, _round_bias(bias, product_step), product_step / step]
        return run_integer_layers(x, [scale.format for scale in (source, *rest)], *parts) * step

    @torch.no_grad()
    def _observe(self, x: Tensor) -> None:
        """Let every scale see what it is to cover, once those before it have."""
        source, *rest = self._list_scales()
        source.observe(x)
        step = source.step
        q = run_integer_layers(x, [source.format], step.reciprocal())
        for weight, bias, target in zip(self.layers[::2], self.layers[1::2], rest, strict=True):
            q_weight, weight_step = round_weight(weight, self.weight_format)
            product_step = step * weight_step
            sums = chain(q, (q_weight, _round_bias(bias, product_step)))
            values = sums * product_step
            target.observe(values if target.format.signed else values.relu_())
            step = target.step
            q = run_integer_layers(sums, [target.format], product_step / step)

    def _list_scales(self) -> list[LearnedScale]:
        """Of the input and of every layer's output."""
        return [scale for scale in self.scales if isinstance(scale, LearnedScale)]

    @torch.no_grad()
    def export(self, index: int) -> QuantizedNet:
        """The integers that net number `index` computes with."""
        scales = self._list_scales()
        source, *rest = [self._read_format(scale, index) for scale in scales]
        layers, step = [], scales[0].step
        for number, (weight, bias, output) in enumerate(zip(self.layers[::2], self.layers[1::2], rest, strict=True)):
            q_weight, weight_step = round_weight(weight, self.weight_format)
            q_bias = _round_bias(bias, step * weight_step)
            layers.append(
                QuantizedLayer(
                    kind=Linear,
                    activation=Activation.NONE if number == len(rest) - 1 else Activation.RELU,
                    stride=1,
                    weight=q_weight[index].numpy().astype(np.int8),
                    weight_scale=weight_step[index].view(1).numpy().copy(),
                    weight_format=self.weight_format,
                    bias=q_bias[index].numpy().astype(np.int32),
                    output=output,
                )
            )
            step = scales[number + 1].step
        return QuantizedNet((self.widths[0],), source, tuple(layers))

    @staticmethod
    def _read_format(scale: LearnedScale, index: int) -> ActivationFormat:
        return ActivationFormat(scale.format, np.float32(float(scale.step[index])), 0)


def quantize_after(net: Net, scheme: Scheme, inputs: Floats) -> QuantizedNet:
    """A trained `net` under LQCC's quantizer without training: scales watched on `inputs` (n, width), nothing learned.

    Batches are drawn from `inputs` as training draws them from a replay buffer, always the same ones: in visiting order
    the average would remember the last episode alone. QuantizationError for nets that are no perceptron of vectors with
    ReLUs or whose biases do not fit, and without inputs.
    """
    if not len(inputs):
        raise QuantizationError(f"{scheme.name} needs calibration inputs; pass observations of the policy's rollouts")
    layers = net.layers
    kinds = [Activation.RELU] * (len(layers) - 1) + [Activation.NONE]
    fits = [isinstance(layer, Linear) and layer.activation is kind for layer, kind in zip(layers, kinds, strict=True)]
    if not all(fits) or len(net.input_shape) > 1 or find_norm(net) is not None:
        raise QuantizationError(
            f"{scheme.name}: this quantizer is for vectors and Linear layers with nothing but ReLUs between them; "
            f"use int{scheme.widest} for this net"
        )
    widths = [net.input_shape[0], *(len(layer.bias) for layer in layers)]
    learned = LearnedNet(widths, scheme, [torch.Generator()])
    with torch.no_grad():
        for own, (weight, bias) in zip(range(0, 2 * len(layers), 2), net.tensors, strict=True):
            learned.layers[own].copy_(weight[None])
            learned.layers[own + 1].copy_(bias[None])
        generator = np.random.default_rng(0)
        for _ in range(WARM_UP):
            rows = generator.integers(len(inputs), size=BATCH)
            learned(torch.from_numpy(inputs[rows])[None], observe=True)
    quantized = learned.export(0)
    for index, layer in enumerate(quantized.layers):
        if np.abs(layer.bias).max(initial=0) >= BIAS_LIMIT:
            raise QuantizationError(
                f"{scheme.name}: the weights of layer {index} are too small beside its bias, whose step is theirs; use "
                f"int{scheme.widest} for this net"
            )
    return quantized
