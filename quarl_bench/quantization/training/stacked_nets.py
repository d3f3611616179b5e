"""Nets of one shape, stacked: weights (nets, outputs, inputs), so that many seeds train in one process.

A stack is computed net by net, every net through all its layers, because its activations then stay in the processor's
cache; in bf16, where one batched product beats several, a few nets at a time. Products in fp32 are torch's, but
oneDNN's on processors that are not Intel's, where torch's take twice as long. A net's numbers do not depend on what
else is in the stack.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Linear, Net
from quarl_bench.system.processor import read_processor

Tensor = torch.Tensor
BLOCK = 4  # nets at a time in bf16: the activations of more leave the cache, and fewer take more calls
NARROW = 8  # a side below which oneDNN's set-up costs more than it saves
# The operator that torch's own compiler calls; None where torch was built without oneDNN, or does well without it.
INTEL = read_processor("vendor_id") == "GenuineIntel"
ONEDNN: Any = None if INTEL else getattr(torch.ops.mkldnn, "_linear_pointwise", None)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, relu: bool = False) -> Tensor:
    """An affine map, or its ReLU: (n, outputs) of (n, inputs) and (outputs, inputs), of any strides; or stacks."""
    if x.ndim == 3:
        plain = torch.bmm(x, weight.mT) if bias is None else torch.baddbmm(bias[:, None], x, weight.mT)
    elif ONEDNN is None or min(*x.shape, len(weight)) < NARROW:
        plain = nn.functional.linear(x, weight, bias)
    else:
        result: Tensor = ONEDNN(x, weight, bias, "relu" if relu else "none", [], "")
        return result
    return plain.relu_() if relu else plain


class _StackedNetFunction(torch.autograd.Function):
    """Affine maps with ReLUs between them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, beside: Tensor | None, copies: int, dtype: torch.dtype, *parameters: Tensor
    ) -> Tensor:
        split, x = x.shape[2], x if beside is None else torch.cat([x, beside], 2)
        x, parameters = x.to(dtype), tuple(parameter.to(dtype) for parameter in parameters)
        weights, biases, nets = parameters[::2], parameters[1::2], len(parameters[0])
        given = [net // copies for net in range(nets)]  # the inputs of each net
        last, inputs = len(weights) - 1, []
        result = torch.empty(nets, x.shape[1], weights[-1].shape[1])
        for block in _list_blocks(nets, dtype):
            y = x[given[block]]
            for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
                inputs.append(y)
                y = multiply(y, weight[block], bias[block], relu=layer < last)
            result[block] = y
        if any(ctx.needs_input_grad):
            ctx.inputs, ctx.weights, ctx.biases, ctx.copies, ctx.split = inputs, weights, biases, copies, split
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Gradients of what needs one: of critics, those of the actions alone are computed while the actor learns."""
        inputs, weights, copies, split = ctx.inputs, ctx.weights, ctx.copies, ctx.split
        nets, layers, dtype = len(weights[0]), len(weights), weights[0].dtype
        above, wanted = gradients[0].to(dtype), ctx.needs_input_grad
        found = [
            torch.empty(parameter.shape) if wanted[4 + index] else None
            for index, parameter in enumerate(part for pair in zip(weights, ctx.biases, strict=True) for part in pair)
        ]
        columns = slice(0 if wanted[0] else split, None if wanted[1] else split)
        first = weights[0][..., columns].contiguous()  # oneDNN is slow on columns that lie apart
        of_inputs = torch.empty(nets, inputs[0].shape[-2], first.shape[2]) if first.shape[2] else None
        for number, block in enumerate(_list_blocks(nets, dtype)):
            gradient = above[block]
            for layer in reversed(range(layers)):
                x = inputs[number * layers + layer]
                of_weight, of_bias = found[2 * layer], found[2 * layer + 1]
                if of_weight is not None and of_bias is not None:
                    of_weight[block] = multiply(gradient.mT, x.mT)
                    of_bias[block] = gradient.sum(-2)
                if layer:
                    gradient = multiply(gradient, weights[layer][block].mT)
                    gradient = torch.ops.aten.threshold_backward(gradient, x, 0)
                elif of_inputs is not None:
                    of_inputs[block] = multiply(gradient, first[block].mT)
        of_x = of_beside = None
        if of_inputs is not None:
            shared = of_inputs if copies == 1 else _group(of_inputs, copies).sum(1)
            of_x = shared[..., :split] if wanted[0] else None
            of_beside = shared[..., split if wanted[0] else 0 :] if wanted[1] else None
        return (of_x, of_beside, None, None, *found)


def _list_blocks(nets: int, dtype: torch.dtype) -> Sequence[Any]:
    """What of a stack is computed at once: its indices, or slices of several nets."""
    if dtype is not torch.bfloat16:
        return range(nets)
    return [slice(start, start + BLOCK) for start in range(0, nets, BLOCK)]


def _group(x: Tensor, copies: int) -> Tensor:
    """(nets / copies, copies, ...) of (nets, ...)."""
    return x.view(-1, copies, *x.shape[1:])


def chain(
    x: Tensor,
    parameters: Sequence[Tensor],
    *,
    beside: Tensor | None = None,
    copies: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Outputs (nets, n, outputs) of a stack for inputs (nets / copies, n, inputs), each shared by `copies` nets.

    The inputs are the columns of `x` and behind them those `beside`; of each, gradients are computed where it needs
    them.
    `parameters` are weight (nets, outputs, inputs) and bias (nets, outputs) of each layer; ReLUs stand between layers.
    `dtype` is that of the products; parameters, results and gradients are fp32.
    """
    result: Tensor = _StackedNetFunction.apply(x, beside, copies, dtype, *parameters)  # type: ignore[no-untyped-call]
    return result


def draw_layer(inputs: int, outputs: int, generators: Sequence[torch.Generator]) -> tuple[nn.Parameter, nn.Parameter]:
    """Weight (nets, outputs, inputs) and bias (nets, outputs) as torch's Linear draws them, a stream per net."""
    bound = 1 / math.sqrt(inputs)
    drawn = [
        (
            torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator),
            torch.empty(outputs).uniform_(-bound, bound, generator=generator),
        )
        for generator in generators
    ]
    weight, bias = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    return nn.Parameter(weight), nn.Parameter(bias)


class StackedNet(nn.Module):
    """Multilayer perceptrons with ReLUs; `widths` from input to output."""

    def __init__(
        self, widths: Sequence[int], generators: Sequence[torch.Generator], dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        self.dtype, self.widths = dtype, tuple(widths)
        layers = [draw_layer(i, o, generators) for i, o in pairwise(widths)]
        self.layers = nn.ParameterList([parameter for layer in layers for parameter in layer])

    def forward(self, x: Tensor, *, observe: bool = False) -> Tensor:  # noqa: ARG002 (as LearnedNet)
        """Outputs (nets, n, outputs) of inputs (nets, n, inputs)."""
        return chain(x, list(self.layers), dtype=self.dtype)

    def export(self, index: int) -> Net:
        """Net number `index` of the stack, alone."""
        arrays = [parameter[index].detach().numpy().copy() for parameter in self.layers]
        last = len(arrays) // 2 - 1
        layers = tuple(
            Linear(weight, bias, Activation.NONE if i == last else Activation.RELU)
            for i, (weight, bias) in enumerate(zip(arrays[::2], arrays[1::2], strict=True))
        )
        return Net((self.widths[0],), layers)
