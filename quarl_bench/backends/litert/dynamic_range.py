"""A net in dynamic range: 8-bit weights, float32 activations that are quantized anew, row by row, at every call.

This is what LiteRT's XNNPACK computes of a .tflite file with int8 weights and float32 activations, bit by bit on a
processor with fused multiply-add: ranges, zero points, sums in integers, and its own polynomial for Tanh. The runtime's
older kernels round by another rule: most of their outputs differ, by about a percent of the largest at most.

No calibration is needed, and no integer form exists: a range depends on every observation.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import DeploymentError
from quarl_bench.policies.policy import Policy, PolicyNet
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Floats, Layer, Net

SCHEME = "w8symnarrowpc"  # whose weights are stored without loss, one scale per output
LOWEST, HIGHEST = np.float32(-128), np.float32(127)
GRIDS = range(2, 9)  # bits of symmetric weights that int8 holds
OFF_GRID = 1e-6  # of the largest weight: what float32 leaves of a multiple of its scale
ZERO, ONE = np.float32(0), np.float32(1)
# tanh(x) is x * p(x^2) / q(x^2) within these bounds: coefficients from the highest power down.
EXACT = (Activation.NONE, Activation.RELU, Activation.TANH)  # whose last bits are known
TANH_BOUND = np.float32(7.9807181358)
TANH_P = np.array([1.4248920266e-08, 2.1235626264e-05, 3.5330520477e-03, 1.3412411511e-01, 1], dtype=np.float32)
TANH_Q = np.array([8.1365948290e-07, 3.3472978976e-04, 2.6018999517e-02, 4.6745735407e-01, 1], dtype=np.float32)


@dataclass(frozen=True, eq=False)
class DynamicLayer:
    """A layer's geometry, activation and bias, and its weight in int8 with scales (outputs,)."""

    layer: Layer
    weight: NDArray[np.int8]
    scale: Floats

    def affine(self, x: Floats) -> Floats:
        """The map without activation; x (n, ...) channel-first."""
        rows = x.reshape(len(x), -1)
        q, inverse = quantize_rows(rows)
        exact = torch.from_numpy(q.reshape(x.shape)), torch.from_numpy(self.weight.astype(np.float64))
        if isinstance(self.layer, Conv2d):
            sums = torch.nn.functional.conv2d(*exact, stride=self.layer.stride).numpy()
        else:
            sums = torch.nn.functional.linear(exact[0].flatten(1), exact[1]).numpy()
        channels = (-1,) + (1,) * (sums.ndim - 2)
        scaled = sums.astype(np.float32) * inverse.reshape((-1,) + (1,) * (sums.ndim - 1))
        return multiply_add(scaled, self.scale.reshape(channels), self.layer.bias.reshape(channels))


@dataclass(frozen=True, eq=False)
class DynamicNet:
    """A chain of such layers over inputs of `input_shape`, images channel-first."""

    input_shape: tuple[int, ...]
    layers: tuple[DynamicLayer, ...]

    @classmethod
    def of(cls, net: Net) -> "DynamicNet":
        """`net`, whose weights lie on symmetric grids; DeploymentError, naming a layer that has no such form."""
        return cls(net.input_shape, tuple(_store(layer, index) for index, layer in enumerate(net.layers)))

    @property
    def outputs(self) -> int:
        """Values that the net gives for one observation."""
        return len(self.layers[-1].weight)

    def forward(self, x: Floats) -> Floats:
        """Outputs (n, outputs) for inputs (n, *input_shape); every row as if it were alone."""
        for layer in self.layers:
            y = layer.affine(x)
            if layer.layer.activation is Activation.TANH:
                y = apply_tanh(y)
            x = np.maximum(y, 0) if layer.layer.activation is Activation.RELU else y
        return x


def compute_dynamic(policy: PolicyNet) -> Policy:
    """The policy that runs when the weights of `policy` are stored and its activations quantized at every call."""
    return Policy(policy.transform, DynamicNet.of(policy.net), policy.head)


def quantize_rows(x: Floats) -> tuple[NDArray[np.float64], Floats]:
    """Rows (n, width) as integers less their zero points, exact in float64, and the scale (n,) of each row.

    A range always holds zero. Its zero point is computed in float32, from the end that errs less, and rounded to even.
    """
    low, high = np.minimum(x.min(axis=1), ZERO), np.maximum(x.max(axis=1), ZERO)
    with np.errstate(divide="ignore"):
        scale = np.where(low == high, ONE, (HIGHEST - LOWEST) / (high - low))
    least, most = low * scale, high * scale
    nearer_low = (LOWEST + least) + (HIGHEST + most) > 0
    zero_point = np.rint(np.clip(np.where(nearer_low, LOWEST - least, HIGHEST - most), LOWEST, HIGHEST))[:, None]
    q = np.clip(np.rint(x * scale[:, None]) + zero_point, LOWEST, HIGHEST) - zero_point
    return q.astype(np.float64), ONE / scale


def multiply_add(a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> Floats:
    """The sum a * b + c, rounded once: a float32 product is exact in float64."""
    return np.asarray((a.astype(np.float64) * b + c).astype(np.float32))


def apply_tanh(x: Floats) -> Floats:
    """XNNPACK's polynomial of tanh on float32 values, bit by bit."""
    x = np.clip(x, -TANH_BOUND, TANH_BOUND)
    square = x * x
    numerator, denominator = (np.full_like(x, coefficients[0]) for coefficients in (TANH_P, TANH_Q))
    for p, q in zip(TANH_P[1:], TANH_Q[1:], strict=True):
        numerator, denominator = multiply_add(square, numerator, p), multiply_add(square, denominator, q)
    return np.asarray(x * numerator / denominator)


def _store(layer: Layer, index: int) -> DynamicLayer:
    if layer.activation not in EXACT:
        raise DeploymentError(
            f"litert-dynamic: layer {index} ends in {layer.activation}, whose float32 kernel is not known "
            "to the last bit; use int8"
        )
    if layer.weight.shape[2:] == (1, 1):
        raise DeploymentError(
            f"litert-dynamic: layer {index} is a 1x1 convolution, whose pixels have ranges of their own; use int8"
        )
    axes = tuple(range(1, layer.weight.ndim))
    largest = np.abs(layer.weight).max(axes, keepdims=True, initial=0.0)
    for extent in (largest, np.full_like(largest, largest.max())):  # a scale per output, or one for all
        for bits in GRIDS:
            scale = np.where(extent > 0, extent / np.float32((1 << (bits - 1)) - 1), ONE).astype(np.float32)
            weight = np.rint(layer.weight / scale)
            if (np.abs(weight * scale - layer.weight) <= OFF_GRID * extent).all():
                return DynamicLayer(layer, weight.astype(np.int8), scale.reshape(-1))
    raise DeploymentError(
        f"litert-dynamic: the weights of layer {index} are no integers times a scale; use scheme {SCHEME}"
    )
