"""Batch normalization with running statistics, folded into the affine layer behind it or in front of it.

At play it multiplies and shifts every feature by numbers of its own, which a neighbour's weights and bias take over.
Batch renormalization (Ioffe 2017), as sb3-contrib's CrossQ has it, is the same at play.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.quantization.net import Conv2d, Layer

Doubles = NDArray[np.float64]
RENORM = ("scale", "bias", "ra_mean", "ra_var")  # names of sb3-contrib's numbers, and of torch's
NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True, eq=False)
class BatchNorm:
    """`x * factor + shift` of every feature or channel (n,)."""

    factor: Doubles
    shift: Doubles

    @classmethod
    def of(cls, numbers: Mapping[str, Any], names: tuple[str, ...], epsilon: float) -> "BatchNorm":
        """That of scale, bias, mean and variance (n,) under `names`; scale and bias may be missing."""
        mean, variance = (np.asarray(numbers[name], np.float64) for name in names[2:])
        if mean.size == 0 or not (np.isfinite(mean) & np.isfinite(variance) & (variance + epsilon > 0)).all():
            raise PolicyError("a batch normalization is empty, or its mean or variance is none; restore the file")
        scale = np.asarray(numbers.get(names[0], np.ones_like(mean)), np.float64)
        factor = scale / np.sqrt(variance + epsilon)
        return cls(factor, np.asarray(numbers.get(names[1], np.zeros_like(mean)), np.float64) - mean * factor)

    def fold_into_next(self, layer: Layer) -> Layer:
        """`layer`, whose inputs were normalized, for inputs that are not.

        Channels of an image that was flattened in between count once for each of their pixels.
        """
        inputs, spread = layer.weight.shape[1], max(layer.weight.shape[1] // len(self.factor), 1)
        if spread * len(self.factor) != inputs:
            raise PolicyError(f"a batch normalization of {len(self.factor)} features stands before {inputs} inputs")
        factor, shift = (np.repeat(part, spread).reshape(1, -1) for part in (self.factor, self.shift))
        if isinstance(layer, Conv2d):
            factor, shift = factor[..., None, None], shift[..., None, None]
        weight = layer.weight.astype(np.float64)
        bias = layer.bias + (weight * shift).sum(axis=tuple(range(1, weight.ndim)))
        return replace(layer, weight=(weight * factor).astype(np.float32), bias=bias.astype(np.float32))

    def fold_into_last(self, layer: Layer) -> Layer:
        """`layer` with normalized outputs."""
        if len(self.factor) != len(layer.bias):
            raise PolicyError(f"a batch normalization of {len(self.factor)} features follows {len(layer.bias)} outputs")
        factor = self.factor.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
        weight, bias = layer.weight * factor, layer.bias * self.factor + self.shift
        return replace(layer, weight=weight.astype(np.float32), bias=bias.astype(np.float32))


def find_batch_norm(module: torch.nn.Module) -> BatchNorm | None:
    """The numbers of a module of torch or of sb3-contrib that normalizes batches; None for any other.

    PolicyError for one without running statistics, whose outputs depend on the batch.
    """
    numbers = {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}
    if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
        if NORM[2] not in numbers:
            raise PolicyError(f"module {module} has no portable form: it has no running statistics")
        return BatchNorm.of(numbers, NORM, module.eps)
    if type(module).__module__ == "sb3_contrib.common.torch_layers" and numbers.keys() >= set(RENORM):
        return BatchNorm.of(numbers, RENORM, float(getattr(module, "eps", 0.0)))
    return None
