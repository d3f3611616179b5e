"""The C kernels of actors: compiled once per machine, fed with pointers at every broadcast."""

import ctypes
from functools import cache
from importlib.resources import files as resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.actorq.message import Broadcast, FloatNet
from quarl_bench.backends.c.backend import REORDER, X86
from quarl_bench.backends.c.source import HEADERS as INTEGER_HEADERS
from quarl_bench.backends.c.source import read_resource
from quarl_bench.errors import DeploymentError
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Floats
from quarl_bench.quantization.parameters import ActivationFormat
from quarl_bench.quantization.requantize import Requantization, effective_scale
from quarl_bench.system.compiler import load_library

HEADERS = {"integer.c": INTEGER_HEADERS, "float.c": ("kernels_float.h",)}
FLAGS = {"integer.c": ("-DQUARL_FLOAT", "-DQUARL_U8" if X86 else "-DQUARL_S8"), "float.c": REORDER}
BYTE: Any = np.uint8 if X86 else np.int8
CODES = {Activation.NONE: 0, Activation.RELU: 1, Activation.TANH: 2}
INT32 = np.iinfo(np.int32)


class _IntegerLayer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "scale", "table")),
        *((name, ctypes.c_int32) for name in ("inputs", "outputs", "per_channel", "zero_point", "lowest", "highest")),
        *((name, ctypes.c_int32) for name in ("offset", "table_minimum", "table_offset")),
    ]


class _FloatLayer(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("weight", "bias")),
        *((name, ctypes.c_int32) for name in ("inputs", "outputs", "activation", "half")),
    ]


class CInference:
    """Computes one observation at a time with the weights that it was given last. Not thread-safe."""

    def load(self, broadcast: Broadcast) -> None:
        """Take the weights of `broadcast`: pointers to them, and what is derived from biases and scales."""
        net = broadcast.net
        self._held: list[NDArray[Any]] = []
        if isinstance(net, IntegerNet):
            self._load_integers(net, broadcast.sums)
        else:
            self._load_floats(net)

    def forward(self, x: Floats) -> Floats:
        """Outputs (1, outputs) for one net input (1, inputs)."""
        np.copyto(self._input, x[0])
        self._run(*self._arguments)
        return self._output[None].copy()

    def _load_floats(self, net: FloatNet) -> None:
        layers = [
            _FloatLayer(
                self._hold(weight), self._hold(bias), weight.shape[1], len(bias), CODES[activation],
                int(weight.dtype == np.float16),
            )
            for weight, bias, activation in zip(net.weights, net.biases, net.activations, strict=True)
        ]  # fmt: skip
        widest = max(max(weight.shape) for weight in net.weights)
        self._prepare("float.c", layers, net.weights[0].shape[1], len(net.biases[-1]))
        self._arguments += [self._hold(np.empty(widest, dtype=np.float32)) for _ in range(2)]

    def _load_integers(self, net: IntegerNet, sums: tuple[NDArray[np.int64], ...]) -> None:
        if net.requantization is not Requantization.FP32_RNE:
            raise DeploymentError(f"actors requantize as fp32_rne, not as {net.requantization}")
        layers, source = [], net.input
        for layer, total in zip(net.layers, sums, strict=True):
            shift = source.zero_point + _offset(source)
            bias = layer.bias.astype(np.int64) - shift * total
            if max(bias.max(), -bias.min()) + 255 * 127 * layer.weight.shape[1] > INT32.max:
                raise DeploymentError("a layer's sums leave 32 bits; use smaller layers, or fp16 actors")
            scale = effective_scale(np.asarray(source.scale), layer.weight_scale, np.asarray(layer.output.scale))
            table = None if layer.tabled is None else layer.table.astype(np.int16)
            layers.append(
                _IntegerLayer(
                    weight=self._hold(layer.weight), bias=self._hold(bias.astype(np.int32)), scale=self._hold(scale),
                    table=None if table is None else self._hold(table),
                    inputs=layer.weight.shape[1], outputs=len(bias), per_channel=int(len(scale) > 1),
                    zero_point=layer.output.zero_point, lowest=layer.lowest, highest=layer.output.format.maximum,
                    offset=_offset(layer.output), table_minimum=layer.output.format.minimum,
                    table_offset=0 if layer.tabled is None else _offset(layer.tabled),
                )
            )  # fmt: skip
            source = layer.result
        first, last = net.input, net.output
        formats = [first.zero_point, first.format.minimum, first.format.maximum, _offset(first)]
        widest = max(max(layer.weight.shape) for layer in net.layers)
        self._prepare("integer.c", layers, net.layers[0].weight.shape[1], net.outputs)
        self._arguments += [
            self._hold(array)
            for array in (
                np.array([np.float32(1) / first.scale, last.scale], dtype=np.float32),
                np.array([*formats, last.zero_point, _offset(last)], dtype=np.int32),
                np.empty(widest, dtype=np.int32),
                np.empty(widest, dtype=BYTE),
                np.empty(widest, dtype=BYTE),
            )
        ]

    def _prepare(self, source: str, layers: list[Any], inputs: int, outputs: int) -> None:
        self._layers = (type(layers[0]) * len(layers))(*layers)
        self._input, self._output = np.zeros(inputs, dtype=np.float32), np.zeros(outputs, dtype=np.float32)
        self._run = _load_library(source).actor_run
        self._arguments = [self._layers, len(layers), self._hold(self._input), self._hold(self._output)]

    def _hold(self, array: NDArray[Any]) -> ctypes.c_void_p:
        """The address of an array that lives as long as these weights do."""
        array = np.ascontiguousarray(array)
        self._held.append(array)
        return ctypes.c_void_p(array.ctypes.data)


def _offset(format: ActivationFormat) -> int:
    """What is added to an integer where it is stored (kernels.h, QUARL_OFFSET)."""
    return -format.format.minimum if X86 else 0


@cache
def _load_library(source: str) -> ctypes.CDLL:
    code = {source: (resources(__package__) / source).read_bytes()}
    return load_library(code | {header: read_resource(header) for header in HEADERS[source]}, FLAGS[source])
