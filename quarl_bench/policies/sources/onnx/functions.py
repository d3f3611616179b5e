"""Elementwise functions in an ONNX graph: a region of nodes is evaluated on a grid, and compared with what is known.

So a function is found however an exporter composed it: SiLU as Sigmoid and Mul, GELU from Erf or Tanh, ELU from Exp.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

from quarl_bench.errors import PolicyError
from quarl_bench.policies.sources.onnx.nodes import Graph, Node
from quarl_bench.quantization.activations import ELEMENTWISE, SELU_ALPHA, SELU_SCALE, Activation

Doubles = NDArray[np.float64]
NEAR: Doubles = np.linspace(-30.0, 30.0, 6001)
FAR: Doubles = np.logspace(1.5, 6.0, 100)  # where a clip tells itself; a composed function may overflow there
GRID: Doubles = np.concatenate((NEAR, FAR, -FAR))
TOLERANCE = 1e-6
PARTS = 32  # nodes that one function may be composed of


def _elu(x: Doubles, alpha: float) -> Doubles:
    return np.asarray(np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0))))


def _gelu(x: Doubles, approximate: Any) -> Doubles:
    tanh = approximate in (b"tanh", "tanh")
    return ELEMENTWISE[Activation.GELU_TANH if tanh else Activation.GELU].exact(x)


def _clip(x: Doubles, low: float | None = None, high: float | None = None, **given: float) -> Doubles:
    """Bounds are inputs since opset 11, and attributes before."""
    lowest = given.get("min", -np.inf) if low is None else low
    return np.clip(x, lowest, given.get("max", np.inf) if high is None else high)


FUNCTIONS: dict[str, Callable[..., Doubles]] = {
    "Abs": lambda x, **_: np.abs(x),
    "Add": lambda x, y, **_: x + y,
    "Clip": _clip,
    "Div": lambda x, y, **_: x / y,
    "Elu": lambda x, alpha=1.0: _elu(x, alpha),
    "Erf": erf,
    "Exp": np.exp,
    "Gelu": lambda x, approximate=b"none": _gelu(x, approximate),
    "HardSigmoid": lambda x, alpha=0.2, beta=0.5: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": ELEMENTWISE[Activation.HARDSWISH].exact,
    "LeakyRelu": lambda x, alpha=0.01: np.where(x > 0, x, alpha * x),
    "Log": np.log,
    "Max": lambda *x: functools.reduce(np.maximum, x),
    "Min": lambda *x: functools.reduce(np.minimum, x),
    "Mul": lambda x, y, **_: x * y,
    "Neg": lambda x: -x,
    "Pow": np.power,
    "PRelu": lambda x, slope: np.where(x > 0, x, slope * x),
    "Relu": lambda x: np.maximum(x, 0),
    "Selu": lambda x, alpha=SELU_ALPHA, gamma=SELU_SCALE: gamma * _elu(x, alpha),
    "Sigmoid": expit,
    "Softplus": lambda x: np.logaddexp(0, x),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Sqrt": np.sqrt,
    "Sub": lambda x, y, **_: x - y,
    "Swish": lambda x, alpha=1.0: x * expit(alpha * x),
    "Tanh": np.tanh,
}


def find_function(graph: Graph, tensor: str) -> tuple[Activation, str]:
    """The function that begins at `tensor`, and the tensor that it gives.

    PolicyError, with the node, for none that is known.
    """
    values: dict[str, Doubles] = {tensor: GRID}
    waiting = [node for node in graph.nodes if node.operator in FUNCTIONS]
    done: set[int] = set()
    node = graph.consumers(tensor)[0]
    for _ in range(PARTS):
        ready = [one for one in waiting if id(one) not in done and _is_ready(graph, one, values)]
        if not ready:
            break
        node = ready[0]
        done.add(id(node))
        values[node.outputs[0]] = evaluate(graph, node, values)
        live = [name for name in values if any(id(one) not in done for one in graph.consumers(name))]
        live += [graph.output] if graph.output in values else []
        if live == [node.outputs[0]] and (known := _recognise(values[live[0]])) is not None:
            return known, live[0]
    inside = next((one for one in graph.consumers(tensor) if one.operator not in FUNCTIONS), node)
    raise PolicyError(
        f"{graph.where}: {inside} begins no function with a portable form; known are Gemm, MatMul, Conv, "
        f"{', '.join(activation for activation in Activation if activation is not Activation.NONE)}"
    )


def _is_ready(graph: Graph, node: Node, values: dict[str, Doubles]) -> bool:
    given = [name for name in node.inputs if name]
    scalars = all(name in values or (name in graph.constants and graph.constants[name].size == 1) for name in given)
    return scalars and any(name in values for name in given)


def evaluate(graph: Graph, node: Node, values: dict[str, Doubles]) -> Doubles:
    """What a node of FUNCTIONS gives; constants have one number."""
    inputs = [
        None if not name else values[name] if name in values else float(graph.constants[name].reshape(()))
        for name in node.inputs
    ]
    try:
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[node.operator](*inputs, **node.attributes), dtype=np.float64)
    except TypeError as error:
        raise PolicyError(
            f"{graph.where}: {node} has inputs or attributes of no known form; export it again"
        ) from error


def _recognise(y: Doubles) -> Activation | None:
    for activation, entry in ELEMENTWISE.items():
        expected = entry.exact(GRID)
        near = np.abs(y - expected) <= TOLERANCE * (1 + np.abs(expected))
        near[len(NEAR) :] |= ~np.isfinite(y[len(NEAR) :])
        if activation is not Activation.NONE and near.all():
            return activation
    return None
