"""Bias correction: what rounding adds to a neuron on average is taken out of its bias.

Nagel et al. 2019, "Data-Free Quantization", section 4.2, with measured averages (their appendix D): layer by layer, the
mean difference between a neuron's sum in fp32 and in the integers so far, over calibration states.
"""

from dataclasses import replace

import numpy as np
import torch

from quarl_bench.policies.policy import IntegerPolicy, Observations, PolicyNet
from quarl_bench.quantization.activations import ELEMENTWISE
from quarl_bench.quantization.affine import Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats
from quarl_bench.quantization.parameters import BIAS_LIMIT, QuantizedLayer


def correct_biases(form: PolicyNet, rounded: IntegerPolicy, states: Observations) -> IntegerPolicy:
    """`rounded` with the biases of least mean error in raw `states` (n, ...).

    `form` is the fp32 policy in the form that was rounded (`PolicyNet.rewrite`): its neurons are those of the integers.
    """
    x = form.transform.apply(states)
    q, values, net = rounded.net.input.quantize(x), torch.from_numpy(x), rounded.net
    for index, (layer, (weight, bias)) in enumerate(zip(form.net.layers, form.net.tensors, strict=True)):
        with torch.inference_mode():
            sums = layer.affine(values, weight, bias)
            values = ELEMENTWISE[layer.activation].apply(sums)
        net = correct_layer(net, index, q, sums.numpy())
        q = net.run_layer(index, q)
    return replace(rounded, net=net)


def correct_layer(net: IntegerNet, index: int, q: Integers, wanted: Floats) -> IntegerNet:
    """`net` with the biases of one layer that give its sums, where it reads `q` (n, ...), the means of `wanted`."""
    layer = net.layers[index]
    scale = net.sources[index].scale.astype(np.float64) * layer.weight_scale
    found = net.accumulate(index, q)
    axes = (0, *range(2, found.ndim))
    missing = np.rint(wanted.mean(axis=axes, dtype=np.float64) / scale - found.mean(axis=axes))
    corrected = np.clip(layer.bias + missing, -BIAS_LIMIT, BIAS_LIMIT).astype(np.int32)
    return exchange_layer(net, index, replace(layer, bias=corrected))


def exchange_layer(net: IntegerNet, index: int, layer: QuantizedLayer) -> IntegerNet:
    """`net` with another layer at `index`."""
    return replace(net, layers=(*net.layers[:index], layer, *net.layers[index + 1 :]))
