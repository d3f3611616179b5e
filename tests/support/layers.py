"""Single integer layers whose accumulators a test chooses, and the vectors that separate rounding rules."""

import numpy as np
import torch

from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.affine import IntegerFormat, Integers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats, Linear
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.requantize import effective_scale

INT8 = IntegerFormat(8)


def find_largest_sum(layer: QuantizedLayer, source: ActivationFormat) -> int:
    """Bound of every partial sum."""
    widest = max(abs(source.format.minimum - source.zero_point), abs(source.format.maximum - source.zero_point))
    rows = np.abs(layer.weight.astype(np.int64)).reshape(len(layer.weight), -1).sum(1)
    return int((rows * widest + np.abs(layer.bias.astype(np.int64))).max())


def forward_layer(net: QuantizedNet, index: int, q: Integers) -> Integers:
    """One fake-quantized layer alone, from the integers it reads to the integers it returns, through float32."""
    with torch.inference_mode():
        y = net._forward_layer(index, torch.from_numpy(net.formats[index].dequantize(q))).numpy()
    return net.layers[index].result.quantize(y)


def draw_integers(rng: np.random.Generator, count: int, net: IntegerNet) -> Integers:
    return rng.integers(-128, 128, (count, *net.input_shape))


def make_layer(weight: Integers, bias: Integers, scale: Floats, output: ActivationFormat, **rest: object) -> IntegerNet:
    """One fully connected integer layer; `rest` may set activation, tabled, source and bits."""
    source = rest.pop("source", ActivationFormat(INT8, np.float32(0.03), -7))
    layer = QuantizedLayer(
        kind=Linear,
        activation=rest.pop("activation", Activation.NONE),
        stride=1,
        weight=weight.astype(np.int8),
        weight_scale=np.asarray(scale, dtype=np.float32),
        weight_format=IntegerFormat(rest.pop("bits", 8)),
        bias=bias.astype(np.int32),
        output=output,
        tabled=rest.pop("tabled", None),
    )
    assert not rest
    return IntegerNet((weight.shape[1],), source, (layer,))


def draw_ties(rng: np.random.Generator, scale: Floats) -> Integers:
    """Accumulators whose products with `scale` lie on a tie, or as near to one as an accumulator can."""
    ties = rng.integers(-130, 130, scale.shape) + 0.5
    return np.rint(ties / scale).astype(np.int64) + rng.choice([-1, 0, 0, 0, 1], scale.shape)


def make_tie_net(rng: np.random.Generator, *, exact: bool, per_channel: bool, relu: bool, outputs: int) -> IntegerNet:
    """Zero weights, so that each output is the requantization of its bias."""
    if exact:
        source, target = np.float32(2.0**-5), np.float32(2.0**-3)
        wanted = np.exp2(rng.integers(-17, -1, outputs if per_channel else 1)).astype(np.float32)
    else:
        source, target = (np.float32(rng.uniform(0.01, 0.1)) for _ in range(2))
        wanted = np.exp2(rng.uniform(-22, -17, outputs if per_channel else 1)).astype(np.float32)
    weight_scale = (wanted * target / source).astype(np.float32)
    scale = np.broadcast_to(effective_scale(np.asarray(source), weight_scale, np.asarray(target)), (outputs,))
    return make_layer(
        np.zeros((outputs, 4), dtype=np.int64),
        draw_ties(rng, scale),
        weight_scale,
        ActivationFormat(INT8, target, int(rng.integers(-60, 60))),
        activation=Activation.RELU if relu else Activation.NONE,
        source=ActivationFormat(INT8, source, int(rng.integers(-128, 128))),
    )


def requantize_half_up(net: IntegerNet) -> Integers:
    """The rule that random vectors cannot tell from the right one: one exact product, half up."""
    layer = net.layers[0]
    scale = effective_scale(np.asarray(net.input.scale), layer.weight_scale, np.asarray(layer.output.scale))
    steps = np.floor(layer.bias * scale.astype(np.float64) + 0.5).astype(np.int64)
    return np.clip(steps + layer.output.zero_point, layer.lowest, 127)
