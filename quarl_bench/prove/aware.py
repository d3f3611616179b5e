"""The forward that a policy was trained with, rebuilt from its integers: rounding modules around float32 weights."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from quarl_bench.quantization.activations import Activation, make_module
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Floats, Layer, refuse_branches
from quarl_bench.quantization.scheme import Scheme
from quarl_bench.quantization.training.aware_net import find_path, make_aware


class AwareNet:
    """The modules of quantization-aware training, frozen at the scales of `net`."""

    def __init__(self, net: IntegerNet, scheme: Scheme) -> None:
        """Rebuild; QuantizationError for what such training does not have."""
        refuse_branches(net, "qat")
        self._quantized = QuantizedNet(net.input_shape, net.input, net.layers)
        self.input_shape, self.outputs = net.input_shape, net.outputs
        modules = nn.Sequential(*(module for layer in self._quantized.dequantized.layers for module in _build(layer)))
        make_aware(modules, list(modules), scheme)
        self._path = find_path(list(modules.eval()))
        self._path.adopt(self._quantized)

    def forward(self, x: Floats) -> Floats:
        """Outputs (n, outputs) in float32, every activation rounded by its module."""
        *_, y = self._run(torch.from_numpy(x))
        return np.asarray(y.numpy())

    def trace(self, q: Integers) -> tuple[Integers, ...]:
        """Integers behind every layer for input integers (n, *input_shape), as an IntegerNet's."""
        first, *formats = self._quantized.formats
        found = self._run(torch.from_numpy(first.dequantize(q)))
        return tuple(place.quantize(y.numpy()) for place, y in zip(formats, found, strict=True))

    def _run(self, y: torch.Tensor) -> Iterator[torch.Tensor]:
        for affine, activation in self._path.steps:
            with torch.inference_mode():
                y = affine(y.flatten(1) if isinstance(affine, nn.Linear) else y)
                y = y if activation is None else activation(y)
            yield y


def _build(layer: Layer) -> Iterator[nn.Module]:
    """The plain modules of a layer, which hold its weights."""
    outputs, inputs, *kernel = layer.weight.shape
    module: nn.Module = nn.Linear(inputs, outputs)
    if isinstance(layer, Conv2d):
        module = nn.Conv2d(inputs, outputs, (kernel[0], kernel[1]), layer.stride)
    module.load_state_dict({"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)})
    yield module
    if layer.activation is not Activation.NONE:
        yield make_module(layer.activation)
