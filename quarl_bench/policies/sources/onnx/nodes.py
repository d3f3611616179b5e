"""A graph as plain values, whichever file it was read from: nodes, constants, and the way from input to output."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError

LIMIT = 2**28  # bytes of a file
NODES = 4096
FLOATS = (1, 10, 11, 16)  # types of ONNX: float32, float16, float64, bfloat16
Array = NDArray[Any]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Node:
    """One operator: the names of what it reads and gives, and its attributes."""

    operator: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        return f"node {self.name[:80]!r} ({self.operator[:40]})"


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes on the way from `input` to `output`, in order, and the constants that they read.

    Where it has cells, `rank` counts the axes of its input, which is one observation; elsewhere it is 0. `shape` is
    what the file says of one observation, 0 where it leaves a size open; empty where it says nothing.
    """

    where: str
    input: str
    output: str
    nodes: tuple[Node, ...]
    constants: dict[str, Array]
    rank: int = 0
    shape: tuple[int, ...] = ()

    def consumers(self, tensor: str) -> list[Node]:
        """The nodes that read a tensor."""
        return [node for node in self.nodes if tensor in node.inputs]

    def refuse(self, node: Node, why: str) -> PolicyError:
        """The error that names the file, the node, and what is not known of it."""
        return PolicyError(f"{self.where}: {node} {why}")


def choose_output(outputs: list[str], named: str | None, where: str) -> str:
    """The output that is the action; PolicyError where that has to be asked."""
    if named is not None and named in outputs:
        return named
    if len(outputs) == 1 and named is None:
        return outputs[0]
    said = ", ".join(outputs)[:120]
    if named is None:
        raise PolicyError(f"{where}: outputs {said}; name the one that is the action, with --arch NAME")
    raise PolicyError(f"{where}: no output {named!r}; there are {said}")


def find_needed(nodes: list[Node], output: str) -> list[Node]:
    """The nodes that the output depends on, in the order of the file."""
    makers = {name: node for node in nodes for name in node.outputs}
    found: set[int] = set()
    waiting = [output]
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and id(node) not in found:
            found.add(id(node))
            waiting += node.inputs
    return [node for node in nodes if id(node) in found]


def read_linear(node: Node, constants: dict[str, Array]) -> tuple[Doubles, Doubles]:
    """Weight (outputs, inputs) and bias (outputs,) of a Gemm, or of a MatMul from the right; ValueError for others."""
    weight, given = constants[node.inputs[1]].astype(np.float64), node.attributes
    if weight.ndim != 2 or given.get("transA", 0):
        raise ValueError(f"has weights of shape {weight.shape}; two axes are known")
    transposed = node.operator == "Gemm" and given.get("transB", 0)
    weight = (weight if transposed else weight.T) * given.get("alpha", 1.0)
    bias = np.zeros(len(weight))
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = bias + constants[node.inputs[2]].astype(np.float64).reshape(-1) * given.get("beta", 1.0)
    return weight, bias
