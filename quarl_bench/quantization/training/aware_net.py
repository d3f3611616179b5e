"""A net that is trained with quantizers in place: making it aware, freezing it, reading its integers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import find_activation, list_modules
from quarl_bench.quantization.affine import IntegerFormat
from quarl_bench.quantization.calibration.ranges import Ranges
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.net import Conv2d, Linear, Net
from quarl_bench.quantization.parameters import QuantizedLayer
from quarl_bench.quantization.ptq import quantize_to_ranges
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.training.aware import (
    AwareConv2d,
    AwareLinear,
    AwareReLU,
    AwareTabled,
    Quantizer,
    wrap_activation,
)

Step = tuple[AwareLinear | AwareConv2d, AwareReLU | AwareTabled | None]  # an affine map, the activation behind it


@dataclass(frozen=True, eq=False)
class AwarePath:
    """The aware modules on the way through a net: every affine map with the activation behind it, if any."""

    steps: tuple[Step, ...]

    @property
    def frozen(self) -> bool:
        """Whether the quant_delay is over: scales are fixed, and forwards use rounded weights."""
        return bool(self.steps[0][0].running_weight_scale[0])

    @property
    def follows(self) -> bool:
        """Whether ranges are to be frozen anew as they move."""
        return self.steps[0][0].follow

    def read_ranges(self) -> Ranges:
        """The ranges that the quantizers observed so far, of the input and of every layer's output."""
        first = self.steps[0][0].before
        assert first is not None  # noqa: S101 (the first map is equipped so)
        return Ranges(first.read_range(), tuple(self._output(step).read_range() for step in self.steps))

    def freeze(self, net: Net) -> None:
        """Fix every scale, from the ranges watched and the weights of `net`, which is this path's, as they are now."""
        self.adopt(quantize_to_ranges(net, self.steps[0][0].scheme, self.read_ranges()))

    def adopt(self, quantized: QuantizedNet) -> None:
        """Fix every scale as in `quantized`, a net of the same layers."""
        source = quantized.input
        for step, layer in zip(self.steps, quantized.layers, strict=True):
            affine, activation = step
            if affine.before is not None:
                affine.before.freeze(source)
            affine.freeze(layer, source.scale)
            if not layer.output.wide:
                self._output(step).freeze(layer.output)
            if isinstance(activation, AwareTabled) and layer.tabled is not None:
                activation.table.freeze(layer.tabled)
            source = layer.result

    def export(self, net: Net) -> QuantizedNet:
        """The integers that the frozen modules compute with; QuantizationError while they only watch."""
        if not self.frozen:
            raise QuantizationError("the quantizers still watch; train beyond quant_delay before exporting")
        activations = IntegerFormat(self.steps[0][0].scheme.bit_width)
        first = self.steps[0][0].before
        assert first is not None  # noqa: S101 (the first map is equipped so)
        layers = tuple(
            self._export_layer(step, layer, activations) for step, layer in zip(self.steps, net.layers, strict=True)
        )
        return QuantizedNet(net.input_shape, first.read_format(activations), layers)

    def _export_layer(
        self,
        step: Step,
        layer: Linear | Conv2d,
        format: IntegerFormat,
    ) -> QuantizedLayer:
        affine, activation = step
        scale = affine.running_weight_scale.cpu().numpy().copy()
        weight_format = IntegerFormat(format.bit_width, narrow_range=True)
        steps = np.rint(layer.weight / scale.reshape((-1,) + (1,) * (layer.weight.ndim - 1)))
        return QuantizedLayer(
            kind=type(layer),
            activation=layer.activation,
            stride=layer.stride if isinstance(layer, Conv2d) else 1,
            weight=np.clip(steps, weight_format.minimum, weight_format.maximum).astype(np.int8),
            weight_scale=scale,
            weight_format=weight_format,
            bias=np.rint(layer.bias / affine.running_bias_scale.cpu().numpy()).astype(np.int32),
            output=self._output(step).read_format(format),
            tabled=activation.table.read_format(format) if isinstance(activation, AwareTabled) else None,
        )

    @staticmethod
    def _output(step: Step) -> Quantizer:
        affine, activation = step
        quantizer = affine.after if activation is None else activation.after
        assert quantizer is not None  # noqa: S101 (a map without activation is equipped with one)
        return quantizer


def make_aware(root: nn.Module, leaves: Sequence[nn.Module], scheme: Scheme, *, follow: bool = False) -> None:
    """Replace, inside `root`, the modules `leaves` of one net, in order, by aware ones that keep their parameters.

    No random number is drawn: until it is frozen the net learns what it would have learnt without. Raises
    QuantizationError, naming it, for a module that cannot be quantized.
    """
    places = {id(child): (parent, name) for parent in root.modules() for name, child in parent.named_children()}
    with torch.random.fork_rng(devices=[]):  # new layers initialise themselves
        _replace(places, leaves, scheme, follow=follow)


def _replace(
    places: dict[int, tuple[nn.Module, str]], leaves: Sequence[nn.Module], scheme: Scheme, *, follow: bool
) -> None:
    last = max((i for i, leaf in enumerate(leaves) if isinstance(leaf, nn.Linear | nn.Conv2d)), default=0)
    first = True
    for index, leaf in enumerate(leaves):
        parent, name = places[id(leaf)]
        if isinstance(leaf, nn.Linear | nn.Conv2d):
            follower = leaves[index + 1] if index + 1 < len(leaves) else None
            bare = index == last or (follower is None or find_activation(follower) is None)
            bare = bare and not (index == last and scheme.wide_outputs)
            setattr(parent, name, _wrap(leaf, scheme, follow=follow, first=first, last=bare))
            first = False
        elif (aware := wrap_activation(leaf, follow=follow)) is not None:
            setattr(parent, name, aware)
        elif not isinstance(leaf, nn.Flatten | nn.Identity):
            raise QuantizationError(
                f"module {leaf} cannot be quantized; known are Linear, Conv2d, Flatten, {list_modules()}"
            )


def find_path(leaves: Sequence[nn.Module]) -> AwarePath:
    """The aware modules among `leaves`, the modules of one net in order."""
    steps: list[Step] = []
    for leaf in leaves:
        if isinstance(leaf, AwareLinear | AwareConv2d):
            steps.append((leaf, None))
        elif isinstance(leaf, AwareReLU | AwareTabled):
            steps[-1] = (steps[-1][0], leaf)
    if not steps:
        raise QuantizationError("this policy was not made for quantization-aware training")
    return AwarePath(tuple(steps))


def _wrap(leaf: nn.Linear | nn.Conv2d, scheme: Scheme, **options: bool) -> AwareLinear | AwareConv2d:
    if leaf.bias is None:
        raise QuantizationError(f"module {leaf} has no bias; give it one")
    if isinstance(leaf, nn.Linear):
        return AwareLinear.wrap(leaf, scheme, **options)
    if set(map(str, leaf.padding)) != {"0"} or set(leaf.dilation) != {1} or leaf.groups != 1:
        raise QuantizationError(f"module {leaf} cannot be quantized: no padding, dilation or groups")
    return AwareConv2d.wrap(leaf, scheme, **options)
