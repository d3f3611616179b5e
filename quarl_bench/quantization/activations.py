"""The elementwise functions behind a layer's affine map: one entry each, from which every form of it follows.

In float32 torch computes them. In integers a ReLU is the lower clip of a layer's output, and every other function a
table of all integers in front of it, whose entries `exact` gives in float64. Parameters are torch's defaults: a module
with others is another function, and refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import erf, expit
from torch import nn
from torch.nn import functional

from quarl_bench.errors import PolicyError

Doubles = NDArray[np.float64]
SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717  # Klambauer et al. 2017
LEAKY_SLOPE = 0.01
TANH_MARGIN = 2e-5  # of steps from a tie: what LiteRT's and onnxruntime's own tanh needs, tables of [-1, 1]
MARGIN = 1e-4  # the same of a table of any range: 255 steps, a few last bits of float32
MARGIN_STEP = np.float32(1 + 2**-10)  # by which a scale grows until its table keeps the margin


class Activation(StrEnum):
    """What follows a layer's affine map."""

    NONE = "none"
    RELU = "relu"
    TANH = "tanh"
    ELU = "elu"
    SELU = "selu"
    SILU = "silu"  # also called swish
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"  # GELU's approximation by a tanh
    LEAKY_RELU = "leaky_relu"
    SOFTPLUS = "softplus"
    SIGMOID = "sigmoid"
    HARDTANH = "hardtanh"
    RELU6 = "relu6"
    HARDSWISH = "hardswish"
    SOFTSIGN = "softsign"


@dataclass(frozen=True)
class Elementwise:
    """One function, computed number by number.

    `module` is torch's, made with `arguments`; `apply` its float32 forward; `exact` the function in float64.
    """

    module: type[nn.Module]
    apply: Callable[[torch.Tensor], torch.Tensor]
    exact: Callable[[Doubles], Doubles]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fused: bool = False  # a clip of the output, and no table
    basic: bool = False  # of +, *, / and comparisons alone, which every machine rounds alike
    margin: float = MARGIN  # how far from a tie the entries of its table stay, in steps
    # Of a function whose results have scale 2^(1 - bits) and zero point 0, because kernels want it so: the input beyond
    # which it is within so much of 1.
    unit_bound: Callable[[float], float] | None = None


def _elu(x: Doubles) -> Doubles:
    return np.asarray(np.where(x > 0, x, np.expm1(np.minimum(x, 0))))


def _selu(x: Doubles) -> Doubles:
    return np.asarray(SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))))


def _gelu_tanh(x: Doubles) -> Doubles:
    return np.asarray(0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


ELEMENTWISE: dict[Activation, Elementwise] = {
    Activation.NONE: Elementwise(nn.Identity, lambda x: x, lambda x: x, fused=True),
    Activation.RELU: Elementwise(nn.ReLU, torch.relu, lambda x: np.maximum(x, 0), fused=True),
    Activation.TANH: Elementwise(
        nn.Tanh, torch.tanh, np.tanh, margin=TANH_MARGIN, unit_bound=lambda rest: float(np.arctanh(1 - rest))
    ),
    Activation.ELU: Elementwise(nn.ELU, functional.elu, _elu, {"alpha": 1.0}),
    Activation.SELU: Elementwise(nn.SELU, torch.selu, _selu),
    Activation.SILU: Elementwise(nn.SiLU, functional.silu, lambda x: x * expit(x)),
    Activation.GELU: Elementwise(
        nn.GELU, functional.gelu, lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))), {"approximate": "none"}
    ),
    Activation.GELU_TANH: Elementwise(
        nn.GELU, lambda x: functional.gelu(x, approximate="tanh"), _gelu_tanh, {"approximate": "tanh"}
    ),
    Activation.LEAKY_RELU: Elementwise(
        nn.LeakyReLU,
        lambda x: functional.leaky_relu(x, LEAKY_SLOPE),
        lambda x: np.where(x > 0, x, LEAKY_SLOPE * x),
        {"negative_slope": LEAKY_SLOPE},
        basic=True,
    ),
    Activation.SOFTPLUS: Elementwise(
        nn.Softplus, functional.softplus, lambda x: np.logaddexp(0, x), {"beta": 1, "threshold": 20}
    ),
    Activation.SIGMOID: Elementwise(nn.Sigmoid, torch.sigmoid, expit),
    Activation.HARDTANH: Elementwise(
        nn.Hardtanh, functional.hardtanh, lambda x: np.clip(x, -1, 1), {"min_val": -1, "max_val": 1}, basic=True
    ),
    Activation.RELU6: Elementwise(nn.ReLU6, functional.relu6, lambda x: np.clip(x, 0, 6), basic=True),
    Activation.HARDSWISH: Elementwise(
        nn.Hardswish, functional.hardswish, lambda x: x * np.clip(x + 3, 0, 6) / 6, basic=True
    ),
    Activation.SOFTSIGN: Elementwise(nn.Softsign, functional.softsign, lambda x: x / (1 + np.abs(x)), basic=True),
}
MODULES = {entry.module for activation, entry in ELEMENTWISE.items() if activation is not Activation.NONE}


def is_tabled(activation: Activation) -> bool:
    """Whether it is a table in integers."""
    return not ELEMENTWISE[activation].fused


def make_module(activation: Activation) -> nn.Module:
    """Torch's module of an activation."""
    entry = ELEMENTWISE[activation]
    return entry.module(**entry.arguments)


def list_modules() -> str:
    """Names of torch's modules that are known, for messages."""
    names = (entry.module.__name__ for activation, entry in ELEMENTWISE.items() if activation is not Activation.NONE)
    return ", ".join(dict.fromkeys(names))


def find_activation(module: nn.Module) -> Activation | None:
    """The activation that a module of torch is; None for a module that is none.

    PolicyError for parameters that are not torch's defaults.
    """
    if type(module) not in MODULES:
        return None
    entries = [(activation, entry) for activation, entry in ELEMENTWISE.items() if entry.module is type(module)]
    for activation, entry in entries:
        if all(getattr(module, name) == value for name, value in entry.arguments.items()):
            return activation
    known = " or ".join(str(make_module(activation)) for activation, _ in entries)
    raise PolicyError(f"module {module} has no portable form; use {known}")
