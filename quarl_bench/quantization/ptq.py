"""Post-training quantization of a net: weights only, or weights and activations down to integers."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import QuantizationError
from quarl_bench.quantization.activations import ELEMENTWISE, MARGIN_STEP, Activation, is_tabled
from quarl_bench.quantization.affine import SMALLEST_SCALE, IntegerFormat, choose_affine, to_power_of_two
from quarl_bench.quantization.branches import list_places
from quarl_bench.quantization.calibration.formats import Range, choose_format
from quarl_bench.quantization.calibration.ranges import Ranges, observe_activations
from quarl_bench.quantization.equalization import absorb_biases, equalize_layers
from quarl_bench.quantization.fake_quantized import QuantizedNet
from quarl_bench.quantization.learned import quantize_after
from quarl_bench.quantization.net import Conv2d, Floats, Layer, Linear, Net, find_norm, refuse_branches
from quarl_bench.quantization.parameters import (
    BIAS_LIMIT,
    SUM_BITS,
    ActivationFormat,
    PartedFormat,
    QuantizedLayer,
    has_margin,
)
from quarl_bench.quantization.recurrent.cells import NO_STATE, State
from quarl_bench.quantization.recurrent.quantized import QuantizedCell
from quarl_bench.quantization.recurrent.ranges import choose_cell
from quarl_bench.quantization.scheme import Family, Granularity, Scheme

SAMPLES = 4097  # of a function over a range, which say where it is flat and what it reaches
SCALE_LIMIT = 128.0  # XNNPACK refuses requantization scales of 256 and more


def quantize_net(
    net: Net, scheme: Scheme, inputs: Floats | None = None, state: State | None = None
) -> Net | QuantizedNet:
    """`net` under `scheme`: a Net with rounded weights (fp32, fp16, w<n>), or a QuantizedNet (int<n>).

    `inputs` (n, *input_shape) are calibration inputs in visiting order, needed by int<n> unless it is `uncal`. LQCC's
    quantizer (`i<n>c<n>o<n>ptq`) takes perceptrons with ReLUs. `state` is that of a recurrent net at these inputs.
    """
    if scheme.family is Family.FP32:
        return net
    if scheme.family is Family.FP16:
        return _with_layers(net, [_to_fp16(layer, index) for index, layer in enumerate(net.layers)])
    if scheme.family is Family.WEIGHT_ONLY:
        return _with_layers(net, [_round_weights(layer, scheme) for layer in rewrite(net, scheme).layers])
    if scheme.trained:
        aware = scheme.family is Family.AWARE
        other = f"int{scheme.bit_width}" if aware else replace(scheme, width=0, after=True).name
        raise QuantizationError(f"{scheme.name} is trained, not applied; use {other} for a trained policy")
    if scheme.repaired:
        plain = replace(scheme, repaired=False).name
        raise QuantizationError(
            f"{scheme.name} is found for a policy, not applied: `quarl repair --scheme {plain}` writes its integers"
        )
    if net.recurrent:
        _check_recurrent(net, scheme, inputs, state)
    if not scheme.calibrated:
        inputs = np.random.default_rng(0).standard_normal((1000, *net.input_shape)).astype(np.float32)
    if inputs is None or len(inputs) == 0:
        raise QuantizationError(f"{scheme.name} needs calibration inputs; pass observations of the policy's rollouts")
    if scheme.family is Family.LEARNED:
        refuse_branches(net, scheme.name)
        return quantize_after(net, scheme, inputs)
    net = rewrite(net, scheme, inputs)
    return quantize_to_ranges(net, scheme, observe_activations(net, scheme, inputs, state or NO_STATE))


def _check_recurrent(net: Net, scheme: Scheme, inputs: Floats | None, state: State | None) -> None:
    """QuantizationError for what the integers of a recurrent cell have no form for."""
    lacking = {
        "pow2": scheme.power_of_two,
        "uncal": not scheme.calibrated,
        "hba": scheme.absorbed_biases,
        "acc": scheme.wide_outputs,
    }
    option = next((name for name, given in lacking.items() if given), None)
    if scheme.family is Family.LEARNED or option is not None:
        raise QuantizationError(f"{scheme.name}: a recurrent policy has no form in {option or 'learned scales'}")
    if any(cell.place + 2 == len(net.layers) for cell in net.cells):
        raise QuantizationError(
            f"{scheme.name}: a recurrent cell is the policy's last layer; let a Linear layer follow"
        )
    if inputs is not None and state is None:
        raise QuantizationError(
            f"{scheme.name} needs a recurrent policy's states as well; pass Visited of its rollouts"
        )


def rewrite(net: Net, scheme: Scheme, inputs: Floats | None = None) -> Net:
    """`net` with the same fp32 function, to rounding, in the form that `scheme` rounds.

    `inputs` (n, *input_shape) say what biases can be absorbed; QuantizationError where these are asked for without.
    """
    if scheme.equalized_layers or scheme.absorbed_biases:
        refuse_branches(net, scheme.name)
    if scheme.equalized_layers:
        net = equalize_layers(net)
    if not scheme.absorbed_biases:
        return net
    if inputs is None or len(inputs) == 0:
        raise QuantizationError(f"{scheme.name} needs calibration inputs; pass observations of the policy's rollouts")
    return absorb_biases(net, inputs)


def count_levels(weight: Floats, per_channel: bool) -> int:
    """Most distinct values in one tensor or channel: at most 2^n after n-bit quantization, the proof that it ran."""
    groups = weight.reshape(len(weight), -1) if per_channel else weight.reshape(1, -1)
    return max((len(np.unique(group)) for group in groups), default=0)


def _with_layers(net: Net, layers: list[Layer]) -> Net:
    return replace(net, layers=tuple(layers))


def _to_fp16(layer: Layer, index: int) -> Layer:
    with np.errstate(over="ignore"):  # reported below, with the layer's name
        weight, bias = (array.astype(np.float16).astype(np.float32) for array in (layer.weight, layer.bias))
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise QuantizationError(f"fp16: layer {index} holds values beyond 65504; use bf16 or fp32 for this policy")
    return replace(layer, weight=weight, bias=bias)


def _round_weights(layer: Layer, scheme: Scheme) -> Layer:
    low, high = _weight_range(layer, scheme)
    weight_format = IntegerFormat(scheme.bit_width, signed=True, narrow_range=scheme.narrow_range)
    affine = choose_affine(
        low, high, weight_format, symmetric=scheme.symmetric, endpoint=False, rounding=scheme.rounding
    )
    return replace(layer, weight=affine.dequantize(affine.quantize(layer.weight)).astype(np.float32))


def _weight_range(layer: Layer, scheme: Scheme) -> tuple[Floats, Floats]:
    """Extremes with kept axes: (1, ..., 1) per tensor, (outputs, 1, ...) per channel; zero for an empty tensor."""
    per_channel = scheme.granularity_of(isinstance(layer, Conv2d)) is Granularity.PER_CHANNEL
    axes = tuple(range(1 if per_channel else 0, layer.weight.ndim))
    return layer.weight.min(axes, keepdims=True, initial=0.0), layer.weight.max(axes, keepdims=True, initial=0.0)


def quantize_to_ranges(net: Net, scheme: Scheme, ranges: Ranges) -> QuantizedNet:
    """`net` with integer weights and activations, whose formats cover `ranges`.

    QuantizationError for a normalized layer, which has no integer form, and for wide outputs behind an activation.
    """
    if (index := find_norm(net)) is not None:
        raise QuantizationError(f"{scheme.name}: layer {index} is followed by a layer normalization; use fp16 or w<n>")
    if scheme.layer_bits and len(scheme.layer_bits) != len(net.layers):
        raise QuantizationError(f"{scheme.name}: bits of {len(scheme.layer_bits)} layers, not of {len(net.layers)}")
    first = source = choose_format(ranges.input, IntegerFormat(scheme.bit_width), scheme)
    layers: list[QuantizedLayer] = []
    cells: list[QuantizedCell] = []
    if net.branches:
        parted, layers = _quantize_branches(net, scheme, ranges)
        first, source = parted, parted.joined
    for cell, seen in zip(net.cells, ranges.cells, strict=True):
        cells.append(choose_cell(cell, seen, choose_format(seen.hidden, first.format, scheme)))
    places = {place: cell for cell in cells for place in (cell.place, cell.place + 1)}
    for index, (layer, span) in enumerate(zip(net.layers, ranges.outputs, strict=True)):
        if index < net.stem:
            continue  # a branch's
        if index in places:
            quantized = _quantize_layer(layer, scheme, source, span, scheme.bits_of(index))
            layers.append(replace(quantized, output=places[index].sums))
            source = places[index].hidden
            continue
        if scheme.wide_outputs and len(layers) == len(net.layers) - 1:
            layers.append(_quantize_wide_layer(layer, scheme, source, scheme.bits_of(index)))
        else:
            layers.append(_quantize_layer(layer, scheme, source, span, scheme.bits_of(index)))
        source = layers[-1].result
    return QuantizedNet(net.input_shape, first, tuple(layers), tuple(cells), net.branches)


def _quantize_branches(net: Net, scheme: Scheme, ranges: Ranges) -> tuple[PartedFormat, list[QuantizedLayer]]:
    """The format of the input, and the layers of its branches, all of which end in the one that the chain reads."""
    integers = IntegerFormat(scheme.bit_width)
    joined = choose_format(ranges.input, integers, scheme)
    layers: list[QuantizedLayer] = []
    found: dict[range, ActivationFormat] = {}  # by the layers that read it
    for place, span in zip(list_places(net.branches), ranges.parts, strict=True):
        if not place.layers:
            continue
        source = found[place.layers] = choose_format(span, integers, scheme)
        for index in place.layers:
            reached = ranges.input if index == place.layers[-1] else ranges.outputs[index]
            layers.append(_quantize_layer(net.layers[index], scheme, source, reached, scheme.bits_of(index)))
            source = layers[-1].result
        if layers[-1].tabled is not None:
            raise QuantizationError(
                f"{scheme.name}: layer {place.layers[-1]} ends a branch in a table, whose scale is its own; use w<n>"
            )
        joined = max(joined, source, key=lambda one: one.scale)
    for own in found:
        layers[own[-1]] = replace(layers[own[-1]], output=joined)
    parts = tuple(found.get(place.layers, joined) for place in list_places(net.branches))
    widths = tuple(branch.width for branch in net.branches)
    return PartedFormat(joined.format, joined.scale, joined.zero_point, parts, widths), layers


def _quantize_wide_layer(layer: Layer, scheme: Scheme, source: ActivationFormat, bits: int) -> QuantizedLayer:
    """The last layer, whose sums are the outputs: on one scale for all, so that they compare as integers."""
    if not isinstance(layer, Linear) or layer.activation is not Activation.NONE:
        raise QuantizationError(
            f"{scheme.name}: the sums of the last layer are outputs only if it is fully connected and nothing follows; "
            "leave out acc"
        )
    one = replace(scheme, granularity=Granularity.PER_TENSOR)
    quantized = _quantize_layer(layer, one, source, Range(0.0, 0.0), bits)
    scale = source.scale * quantized.weight_scale[0]
    return replace(quantized, output=ActivationFormat(IntegerFormat(SUM_BITS), scale, 0))


def _quantize_layer(layer: Layer, scheme: Scheme, source: ActivationFormat, span: Range, bits: int) -> QuantizedLayer:
    weight_format = IntegerFormat(bits, signed=True, narrow_range=scheme.narrow_range)
    low, high = _weight_range(layer, scheme)
    # Scales are float32 from here on, and large enough that the bias fits int32.
    scale = choose_affine(low, high, weight_format, symmetric=True, endpoint=False).scale.reshape(-1)
    bias_bound = np.abs(layer.bias) if len(scale) > 1 else np.abs(layer.bias).max(initial=0.0)
    scale = np.maximum(scale, bias_bound / np.float64(source.scale) / BIAS_LIMIT)
    scale = np.maximum(scale, SMALLEST_SCALE / min(1.0, float(source.scale)))
    scale32 = (to_power_of_two(scale) if scheme.power_of_two else scale).astype(np.float32)
    steps = np.rint(layer.weight / scale32.reshape((-1,) + (1,) * (layer.weight.ndim - 1)))
    weight = np.clip(steps, weight_format.minimum, weight_format.maximum).astype(np.int8)
    bias = np.rint(layer.bias / (source.scale * scale32).astype(np.float64)).astype(np.int32)

    smallest = float(source.scale) * float(scale32.max()) / SCALE_LIMIT
    tabled = None
    if is_tabled(layer.activation):
        output, tabled = _choose_table(layer.activation, span, source.format, scheme, smallest)
    else:
        output = choose_format(span, source.format, scheme, smallest)
    stride = layer.stride if isinstance(layer, Conv2d) else 1
    return QuantizedLayer(type(layer), layer.activation, stride, weight, scale32, weight_format, bias, output, tabled)


def _choose_table(
    activation: Activation, span: Range, format: IntegerFormat, scheme: Scheme, smallest: float
) -> tuple[ActivationFormat, ActivationFormat]:
    """Formats in front of a table and behind it, for sums within `span`; no entry is near a tie.

    Both ends of the range in front where the function is flat, within half a step of its results, are cut off: they
    would only waste integers.
    """
    entry = ELEMENTWISE[activation]
    step = np.float32(2) if scheme.power_of_two else MARGIN_STEP
    if entry.unit_bound is not None:
        behind = ActivationFormat(format, np.float32(2.0 ** (1 - scheme.bit_width)), 0)
        bound = entry.unit_bound(float(behind.scale) / 2)
        span = Range(max(span.low, -bound), min(span.high, bound))
        front = choose_format(span, format, scheme, smallest)
        while not has_margin(activation, front, behind):
            front = replace(front, scale=front.scale * step)
        return front, behind
    x = np.linspace(span.low, span.high, SAMPLES)
    y = entry.exact(x)
    half = float(max(y.max(), 0.0) - min(y.min(), 0.0)) / (format.levels - 1) / 2
    first, last = _count_flat(y, half), SAMPLES - 1 - _count_flat(y[::-1], half)
    if first < last:
        span, y = Range(float(x[first]), float(x[last])), y[first : last + 1]
    front = choose_format(span, format, scheme, smallest)
    behind = choose_format(Range(float(y.min()), float(y.max())), format, scheme)
    # Doubling the scale of a function that all machines compute alike would lose a bit for nothing.
    while not (entry.basic and scheme.power_of_two) and not has_margin(activation, front, behind):
        behind = replace(behind, scale=behind.scale * step)  # at last every entry is below half a step
    return front, behind


def _count_flat(y: NDArray[np.float64], half: float) -> int:
    """Index of the last of the first values that all are within `half` of the first one."""
    beyond = np.abs(y - y[0]) > half
    return int(beyond.argmax()) - 1 if beyond.any() else 0
