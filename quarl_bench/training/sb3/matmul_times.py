"""Single matrix products on the clock: torch's own fp32 kernel, oneDNN's, and half precision with its casts.

torch multiplies fp32 matrices with MKL, which takes a slow path on processors of other makers than its own. A gain of
half precision over that is no gain of half precision.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from quarl_bench.training.sb3.mixed_precision import TYPES

CPU, CUDA = "cpu", "cuda"
STOCK, ONEDNN = "stock", "onednn"  # fp32: torch's own choice, and oneDNN
WIDTHS = (64, 256, 1024)  # of square linear layers
ROWS = 256  # of their inputs


def time_call(call: Callable[[], Any], calls: int, seconds: float, device: str) -> float:
    """Median seconds of at least so many calls and seconds, behind a warm-up."""
    synchronize = torch.cuda.synchronize if device == CUDA else _do_nothing
    for _ in range(2):
        call()
    synchronize()
    taken: list[float] = []
    while len(taken) < calls or sum(taken) < seconds:
        start = time.perf_counter()
        call()
        synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


class OneDnnLinear(torch.autograd.Function):
    """A linear layer in fp32 whose three products run in oneDNN, which knows every maker's processors."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Map (n, inputs) to (n, outputs) by oneDNN's matrix product."""
        ctx.save_for_backward(inputs, weight)
        return multiply(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Gradients of inputs, weight and bias."""
        inputs, weight = ctx.saved_tensors
        return (
            multiply(gradient, weight.t().contiguous()),
            multiply(gradient.t().contiguous(), inputs.t().contiguous()),
            gradient.sum(dim=0),
        )


def multiply(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`inputs @ weight.T + bias` in oneDNN, fp32."""
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")  # noqa: SLF001
    return product


class LeanLinear(torch.nn.Linear):
    """A linear layer in fp32 whose product oneDNN computes."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Map (n, inputs) to (n, outputs) by oneDNN's matrix product."""
        found: torch.Tensor = OneDnnLinear.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found


def list_kernels(device: str, precisions: Sequence[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Forward passes of square linear layers under `<width>-<kernel>`; half precision with its casts."""
    for width in WIDTHS:
        shapes = ((ROWS, width), (width, width), (width,))
        inputs, weight, bias = (torch.randn(*shape, device=device) for shape in shapes)
        yield f"{width}-{STOCK}", partial(torch.nn.functional.linear, inputs, weight, bias)
        if device == CPU:
            yield f"{width}-{ONEDNN}", partial(multiply, inputs, weight, bias)
        for name in precisions:
            yield f"{width}-{name}", partial(_cast_and_multiply, inputs, weight, bias, TYPES[name])


def _cast_and_multiply(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, half: torch.dtype) -> Any:
    return torch.nn.functional.linear(inputs.to(half), weight.to(half), bias.to(half)).float()


def _do_nothing() -> None:
    """Do nothing: a processor has finished when a call returns, where a GPU would have to be waited for."""
