"""Rewrites of a net that leave its fp32 function as it is, to rounding, and make one scale per tensor go further.

Cross-layer equalization (Nagel et al. 2019, "Data-Free Quantization", section 4.1): behind a ReLU a neuron may be
divided by a positive number that the next layer multiplies back. Chosen as here, the weights that make a neuron and
those that read it have the same range, so that no neuron's weights are lost beside those of another.

High-bias absorption (section 4.1.3 there): what a neuron behind a ReLU never falls below is a constant, which the bias
of the next layer can hold as well; its activations then need no integers for it.

Input equalization divides every input by its own range and multiplies the first layer's weights instead.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.quantization.activations import ELEMENTWISE, Activation
from quarl_bench.quantization.net import Floats, Layer, Net, find_norm
from quarl_bench.quantization.scheme import ObserverKind

LIMITS = 0.01, 100.0  # of a factor: a neuron that is nearly dead is not blown up


def equalize_layers(net: Net) -> Net:
    """`net` with every pair of layers around a ReLU equalized, from the first to the last.

    A net with a normalized layer is left as it is: what follows a normalization has a range of its own.
    """
    if find_norm(net) is not None:
        return net
    layers = list(net.layers)
    for index in range(len(layers) - 1):
        if layers[index].activation is Activation.RELU:
            layers[index], layers[index + 1] = _equalize_pair(layers[index], layers[index + 1])
    return replace(net, layers=tuple(layers))


def absorb_biases(net: Net, inputs: Floats) -> Net:
    """`net` with the least sum of every neuron behind a ReLU, over `inputs` (n, *input_shape), in the next bias.

    The same function wherever no sum falls below what it was there: exact in every state that calibrates. A net with a
    normalized layer is left as it is.
    """
    if find_norm(net) is not None:
        return net
    layers, values = list(net.layers), torch.from_numpy(inputs)
    for index in range(len(layers) - 1):
        layer = net.layers[index]  # what was absorbed before leaves its sums as they are
        with torch.inference_mode():
            sums = layer.affine(values, *net.tensors[index])
            values = ELEMENTWISE[layer.activation].apply(sums)
        if layer.activation is Activation.RELU:
            least = sums.amin(dim=(0, *range(2, sums.ndim))).numpy().astype(np.float64)
            layers[index : index + 2] = _absorb(layers[index], layers[index + 1], np.maximum(least, 0.0))
    return replace(net, layers=tuple(layers))


def scale_inputs(net: Net, ranges: NDArray[np.float64]) -> Net:
    """`net` for inputs (n, width) divided by `ranges` (width,): the first layer's weights grow by as much."""
    first, *others = net.layers
    weight = (first.weight.astype(np.float64) * ranges).astype(np.float32)
    return replace(net, layers=(replace(first, weight=weight), *others))


def find_input_ranges(inputs: Floats, kind: ObserverKind, percentile: float) -> NDArray[np.float64]:
    """Per feature of `inputs` (n, width) its largest magnitude, or a percentile of them; 1 for one that is always 0."""
    magnitudes = np.abs(inputs.astype(np.float64))
    share = percentile if kind is ObserverKind.PERCENTILE else 100.0
    found = np.percentile(magnitudes, share, axis=0)
    return np.where(found > 0, found, 1.0)


def _equalize_pair(first: Layer, second: Layer) -> tuple[Layer, Layer]:
    """Both layers with factors between them; the neurons of a convolution are its channels."""
    neurons = len(first.bias)
    made = np.abs(first.weight.reshape(neurons, -1).astype(np.float64)).max(axis=1)
    read = np.abs(_by_neuron(second, neurons).astype(np.float64)).max(axis=(0, 2))
    alive = (made > 0) & (read > 0)
    factor = np.ones(neurons)
    factor[alive] = np.clip(np.sqrt(made[alive] / read[alive]), *LIMITS)
    column = factor.reshape((-1,) + (1,) * (first.weight.ndim - 1))
    scaled = replace(
        first,
        weight=(first.weight / column).astype(np.float32),
        bias=(first.bias / factor).astype(np.float32),
    )
    weight = (_by_neuron(second, neurons) * factor[None, :, None]).astype(np.float32).reshape(second.weight.shape)
    return scaled, replace(second, weight=weight)


def _absorb(first: Layer, second: Layer, least: NDArray[np.float64]) -> tuple[Layer, Layer]:
    """Both layers with `least` (neurons,) moved from the bias of the first to that of the second."""
    read = _by_neuron(second, len(least)).astype(np.float64).sum(axis=2)
    lowered = replace(first, bias=(first.bias - least).astype(np.float32))
    return lowered, replace(second, bias=(second.bias + read @ least).astype(np.float32))


def _by_neuron(layer: Layer, neurons: int) -> Floats:
    """Weights as (outputs, neurons, weights per neuron): a Linear behind a convolution reads a channel's pixels."""
    return layer.weight.reshape(len(layer.bias), neurons, -1)
