"""What a layer becomes in a .tflite file: its numbers as stored, and their scales."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.affine import IntegerFormat, Integers
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Conv2d, Floats, Layer
from quarl_bench.quantization.parameters import ActivationFormat, QuantizedLayer
from quarl_bench.quantization.products.sums import EXACT_FLOAT32
from quarl_bench.quantization.requantize import effective_scale

ACTIVATIONS = IntegerFormat(8)  # the only integers an int8 tensor of the runtime stands for
LARGEST_SCALE = 256.0


@dataclass(frozen=True, eq=False)
class Scales:
    """Quantization of one tensor: scales (1,) or (channels,) along axis 0, and one zero point for all."""

    scale: Floats
    zero_point: int = 0


@dataclass(frozen=True, eq=False)
class Operands:
    """One layer as the file holds it; the scales are None in a float file."""

    layer: Layer  # geometry, activation, and in a float file the numbers
    weight: NDArray[np.generic]  # the layer's own shape
    bias: NDArray[np.generic]
    bit_width: int  # of a stored weight: 32, 16, 8, 4 or 2; 16 are floats
    weight_scales: Scales | None = None
    bias_scales: Scales | None = None
    output_scales: Scales | None = None
    tabled_scales: Scales | None = None
    table: Integers | None = None  # (256,), of an activation in integers
    wide: bool = False  # whole numbers in float32, behind a cast of the integers that it reads


def check_activations(net: IntegerNet) -> None:
    """DeploymentError for activations that are not 8-bit signed, which the runtime's kernels do not have."""
    formats = [net.input.format]
    for layer in net.layers:
        formats += [] if layer.output.wide else [layer.output.format, layer.result.format]
    for found in formats:
        if found != ACTIVATIONS:
            sign = "signed" if found.signed else "unsigned"
            raise DeploymentError(
                f"litert: its kernels take 8-bit signed activations, not {found.bit_width}-bit {sign} ones"
                f"{' of narrow range' if found.narrow_range else ''}; use an 8-bit scheme or another backend"
            )


def scales_of(format: ActivationFormat) -> Scales:
    """Scale and zero point of one tensor of activations."""
    return Scales(np.array([format.scale], dtype=np.float32), format.zero_point)


def integer_operands(layer: QuantizedLayer, source: ActivationFormat) -> Operands:
    """A layer that reads integers of `source` and returns integers; DeploymentError for a scale XNNPACK refuses."""
    scale = np.broadcast_to(layer.weight_scale, layer.bias.shape)
    scales = (np.asarray(source.scale), scale, np.asarray(layer.output.scale))
    largest = float(effective_scale(*scales).max())
    if largest >= LARGEST_SCALE:
        raise DeploymentError(
            f"litert: a requantization scale of {largest:g}, and XNNPACK refuses {LARGEST_SCALE:g} and more; "
            "calibrate on observations that move the outputs"
        )
    return Operands(
        layer=layer.dequantized(source.scale),
        weight=layer.weight,
        bias=layer.bias,
        bit_width=_storage_width(layer),
        weight_scales=Scales(scale),
        bias_scales=Scales(source.scale * scale),
        output_scales=scales_of(layer.output),
        tabled_scales=None if layer.tabled is None else scales_of(layer.tabled),
        table=None if layer.tabled is None else layer.table,
    )


def wide_operands(layer: QuantizedLayer, source: ActivationFormat) -> Operands:
    """The last layer, whose sums are the output: no integer kernel returns them, and float32 ones are exact here."""
    rows = layer.weight.astype(np.int64).reshape(len(layer.weight), -1)
    bias = layer.bias.astype(np.int64) - source.zero_point * rows.sum(1)
    widest = max(-source.format.minimum, source.format.maximum)
    largest = int((np.abs(rows).sum(1) * widest + np.abs(bias)).max())
    if largest >= EXACT_FLOAT32:
        raise DeploymentError(
            f"litert: wide outputs can reach {largest}, and float32 sums are exact below 2^24; "
            "use fewer bits, leave out acc, or use another backend"
        )
    return Operands(
        layer=layer.dequantized(source.scale),
        weight=layer.weight.astype(np.float32),
        bias=bias.astype(np.float32),
        bit_width=32,
        output_scales=scales_of(layer.output),
        wide=True,
    )


def _storage_width(layer: QuantizedLayer) -> int:
    """Bits of a stored weight: the delegate takes packed ones only in dense layers whose rows fill whole bytes."""
    if layer.kind is Conv2d:
        return 8
    row = layer.weight.shape[1]
    return next(bits for bits in (2, 4, 8) if bits >= layer.weight_format.bit_width and row * bits % 8 == 0)
