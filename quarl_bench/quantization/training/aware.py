"""Quantization-aware training: modules that watch ranges in full precision and then round as the integers will.

Master weights stay fp32. Until they are frozen, the modules only watch: activations by a moving average of the extremes
of batches (Jacob et al. 2018), weights not at all. At the freeze every scale is fixed for good, from then on a forward
computes with the numbers that the integer net has, biases included, and gradients pass the rounding unchanged
(straight-through estimator; QuaRL, section 3). Weights that leave their frozen range saturate.

Frozen ranges suit policies. A Q-network's outputs grow for as long as it learns: stopped by a frozen range, all actions
come to have the same value (on CartPole returns fall to 9). Its quantizers follow: they are frozen anew before each
rollout.

All state is in float32 buffers whose names begin with `running_`: stable-baselines3 copies buffers of that name, and no
others, into target networks.
"""

from typing import Any, Self

import numpy as np
import torch
from torch import nn

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import ELEMENTWISE, Activation, find_activation, is_tabled
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.calibration.formats import Range
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.scheme import Granularity, Scheme

MOMENTUM = 0.01  # weight of the newest batch in an activation's range
INT32_MAX = 2**31 - 1


def fake_quantize_ste(
    x: torch.Tensor, scale: torch.Tensor, low: float, high: float, *, reciprocal: bool
) -> torch.Tensor:
    """`x` on the grid of `scale` between `low` and `high` steps, in float32; its gradient is the identity.

    As in QuantizedNet, activations are multiplied by the `reciprocal`, weights divided.
    """
    rounded = x.to(torch.float32, copy=True)  # all that autograd sees: a Function of our own costs more than the sums
    steps = rounded.data
    steps = steps.mul_(1 / scale) if reciprocal else steps.div_(scale)
    steps.round_().clamp_(low, high).mul_(scale)
    return rounded


class Quantizer(nn.Module):
    """One activation tensor: watches its range while training, rounds it once frozen.

    With `follow` it goes on watching, for whoever freezes it again.
    """

    running_range: torch.Tensor  # (2,) lowest and highest
    running_seen: torch.Tensor  # batches
    running_format: torch.Tensor  # (scale, lowest step, highest step, zero point); scale 0 until frozen

    def __init__(self, *, follow: bool = False) -> None:
        super().__init__()
        self.follow = follow
        for name, size in (("range", 2), ("seen", 1), ("format", 4)):
            self.register_buffer(f"running_{name}", torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`, rounded once the format is known."""
        scale, low, high, _ = self.running_format.tolist()
        if self.training and (self.follow or not scale):
            self._observe(x.detach())
        return fake_quantize_ste(x, self.running_format[0], low, high, reciprocal=True) if scale else x

    @torch.no_grad()
    def _observe(self, x: torch.Tensor) -> None:
        if x.ndim == 4 and not x.is_contiguous():
            x = x.permute(0, 2, 3, 1)  # of images in channels-last order aminmax would make a copy
        extremes = torch.stack(x.aminmax()).float()
        self.running_range.lerp_(extremes, MOMENTUM if self.running_seen else 1.0)
        self.running_seen += 1

    def read_range(self) -> Range:
        """What was watched; QuantizationError when nothing was."""
        if not self.running_seen:
            raise QuantizationError("nothing was seen before the quantizers were frozen; use a later quant_delay")
        return Range(float(self.running_range[0]), float(self.running_range[1]))

    @torch.no_grad()
    def freeze(self, format: ActivationFormat) -> None:
        """Fix scale and zero_point to those of `format`; later forwards observe nothing."""
        low, high = format.format.minimum - format.zero_point, format.format.maximum - format.zero_point
        self.running_format.copy_(torch.tensor([float(format.scale), low, high, format.zero_point]))

    def read_format(self, format: IntegerFormat) -> ActivationFormat:
        """Scale and zero point that `freeze` fixed."""
        scale, _, _, zero_point = self.running_format.tolist()
        return ActivationFormat(format, np.float32(scale), int(zero_point))


class _Affine(nn.Module):
    """What quantization adds to Linear and Conv2d: frozen scales of weight and bias, quantizers around the map."""

    weight: Any  # a parameter
    bias: Any
    running_weight_scale: torch.Tensor  # (1,) per tensor or (outputs,) per channel; 0 until frozen
    running_bias_scale: torch.Tensor
    before: Quantizer | None
    after: Quantizer | None

    def equip(self, scheme: Scheme, *, follow: bool, first: bool, last: bool) -> None:
        """Add the state; `first` rounds its input, `last` (no activation follows) its output."""
        self.scheme, self.follow = scheme, follow
        per_channel = scheme.granularity_of(self.weight.ndim == 4) is Granularity.PER_CHANNEL
        scales = len(self.weight) if per_channel else 1
        self.register_buffer("running_weight_scale", torch.zeros(scales))
        self.register_buffer("running_bias_scale", torch.zeros(scales))
        self.before = Quantizer(follow=follow) if first else None
        self.after = Quantizer(follow=follow) if last else None

    def rounded(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and bias as the integers will be, or as they are until frozen."""
        if not self.running_weight_scale[0]:
            return self.weight, self.bias
        limit = (1 << (self.scheme.bit_width - 1)) - 1
        scale = self.running_weight_scale.view((-1,) + (1,) * (self.weight.ndim - 1))
        weight = fake_quantize_ste(self.weight, scale, -limit, limit, reciprocal=False)
        return weight, fake_quantize_ste(self.bias, self.running_bias_scale, -INT32_MAX, INT32_MAX, reciprocal=False)

    @classmethod
    def wrap(cls, leaf: Any, scheme: Scheme, *, follow: bool, first: bool, last: bool) -> Self:
        """An aware layer around the parameters of `leaf`, which optimizers may hold already."""
        aware = cls(*leaf.weight.shape[1::-1], *((leaf.kernel_size, leaf.stride) if leaf.weight.ndim == 4 else ()))
        aware.weight, aware.bias = leaf.weight, leaf.bias
        aware.equip(scheme, follow=follow, first=first, last=last)
        return aware

    @torch.no_grad()
    def freeze(self, layer: QuantizedLayer, input_scale: np.float32) -> None:
        """Use the scales of `layer` from now on."""
        self.running_weight_scale.copy_(torch.from_numpy(layer.weight_scale))
        self.running_bias_scale.copy_(torch.from_numpy(input_scale * layer.weight_scale))


class AwareLinear(_Affine, nn.Linear):
    """A Linear layer whose numbers are rounded once frozen."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, inputs) to (n, outputs) with rounded weights, and round activations where quantizers are set."""
        y = nn.functional.linear(x if self.before is None else self.before(x), *self.rounded())
        return y if self.after is None else self.after(y)


class AwareConv2d(_Affine, nn.Conv2d):
    """A Conv2d layer whose numbers are rounded once frozen, per output channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, outputs, height, width) of (n, inputs, height, width)."""
        y = nn.functional.conv2d(x if self.before is None else self.before(x), *self.rounded(), self.stride)
        return y if self.after is None else self.after(y)


class AwareReLU(nn.Module):
    """A ReLU whose result passes through a fake quantizer, as activations of the integer net are rounded."""

    def __init__(self, *, follow: bool = False) -> None:
        super().__init__()
        self.after = Quantizer(follow=follow)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute max(x, 0) and fake-quantize it; the shape stays."""
        result: torch.Tensor = self.after(torch.relu(x))
        return result


class AwareTabled(nn.Module):
    """An activation between two roundings, as an integer table is."""

    def __init__(self, activation: Activation, *, follow: bool = False) -> None:
        super().__init__()
        self.activation = activation
        self.after, self.table = Quantizer(follow=follow), Quantizer(follow=follow)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The function of `x`, rounded before and behind."""
        result: torch.Tensor = self.table(ELEMENTWISE[self.activation].apply(self.after(x)))
        return result


def wrap_activation(leaf: nn.Module, *, follow: bool = False) -> AwareReLU | AwareTabled | None:
    """The aware form of an activation of torch; None for another module."""
    activation = find_activation(leaf)
    if activation is None:
        return None
    return AwareTabled(activation, follow=follow) if is_tabled(activation) else AwareReLU(follow=follow)
