"""The neural network of a policy as a frozen value: layers with fp32 weights, and their forward pass.

No RL and no quantization in here: `ptq.py` turns a Net into a quantized one, `policies/` wraps it into a policy.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from quarl_bench.errors import PolicyError
from quarl_bench.quantization.activations import ELEMENTWISE, Activation
from quarl_bench.quantization.branches import Branch, check_branches, find_starts, find_stem, join
from quarl_bench.quantization.products.packed import LARGE, Product
from quarl_bench.quantization.recurrent.cells import (
    PARTS,
    Cell,
    State,
    check_cell,
    list_steps,
    split_state,
    start_state,
)

Floats = NDArray[np.float32]
Outputs = NDArray[np.floating[Any]]  # of a net: float32, or float64 where sums of 32 bits are told apart


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """Shifts and scales the outputs of one example to mean 0 and variance 1, then by weight and bias (outputs,).

    Float only: the mean and the root of each example have no integer form here.
    """

    weight: Floats
    bias: Floats
    epsilon: float = 1e-5

    def apply(self, y: torch.Tensor) -> torch.Tensor:
        """Normalise each row of (n, outputs) to mean 0 and variance 1, then scale and shift it."""
        weight, bias = torch.from_numpy(self.weight), torch.from_numpy(self.bias)
        return torch.nn.functional.layer_norm(y, weight.shape, weight, bias, self.epsilon)


@dataclass(frozen=True, eq=False)
class Linear:
    """y = activation(norm(x @ weight.T + bias)); weight (outputs, inputs), bias (outputs,), norm where there is one."""

    weight: Floats
    bias: Floats
    activation: Activation = Activation.NONE
    norm: LayerNorm | None = None

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape behind this layer; PolicyError when `shape`, flattened, does not fit."""
        if int(np.prod(shape)) != self.weight.shape[1]:
            raise PolicyError(f"a Linear layer of {self.weight.shape[1]} inputs cannot follow the shape {shape}")
        return (self.weight.shape[0],)

    def affine(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """The layer's map without activation; x (n, ...) is flattened channel-first."""
        return self.normalize(torch.nn.functional.linear(x.flatten(1), weight, bias))

    def normalize(self, y: torch.Tensor) -> torch.Tensor:
        """What the product (n, outputs) becomes in front of the activation."""
        return y if self.norm is None else self.norm.apply(y)


@dataclass(frozen=True, eq=False)
class Conv2d:
    """Unpadded convolution; weight (outputs, inputs, height, width), bias (outputs,), one stride for both axes."""

    weight: Floats
    bias: Floats
    stride: int = 1
    activation: Activation = Activation.NONE

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """(outputs, height, width) behind this layer; PolicyError when `shape` does not fit."""
        outputs, inputs, *kernel = self.weight.shape
        if len(shape) != 3 or shape[0] != inputs or any(s < k for s, k in zip(shape[1:], kernel, strict=True)):
            raise PolicyError(f"a Conv2d layer of kernel {self.weight.shape} cannot follow the shape {shape}")
        return (outputs, *((s - k) // self.stride + 1 for s, k in zip(shape[1:], kernel, strict=True)))

    def affine(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """The layer's map without activation; x (n, channels, height, width)."""
        return torch.nn.functional.conv2d(x, weight, bias, self.stride)


Layer = Linear | Conv2d


@dataclass(frozen=True, eq=False)
class Net:
    """A chain of layers over inputs of `input_shape` (without the batch axis; images channel-first).

    Where it has `cells`, two layers each, it has a state, and `step` takes the place of `forward`. Where it has
    `branches`, the first layers are theirs, and the chain behind reads what they end in.
    """

    input_shape: tuple[int, ...]
    layers: tuple[Layer, ...]
    cells: tuple[Cell, ...] = ()
    branches: tuple[Branch, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise PolicyError("a net needs at least one layer")
        free = self.stem
        for cell in self.cells:
            check_cell(cell, self.layers, free)
            free = cell.place + 2
        for index, layer in enumerate(self.layers):
            check_layer(layer, index)
        shape = self.input_shape
        if self.branches:
            check_branches(self.branches, self.layers, self.input_shape)
            shape = find_starts(self.branches, self.layers)[self.stem]
        for index, found in list_steps(self.layers, self.cells, self.stem):
            shape = self.layers[index].output_shape(shape)
            shape = shape if found is None else (self.layers[index + 1].weight.shape[1],)

    @property
    def outputs(self) -> int:
        """Values that the net gives for one observation."""
        last = self.layers[-1].weight
        ends = any(cell.place + 2 == len(self.layers) for cell in self.cells)
        return int(last.shape[1] if ends else last.shape[0])

    @property
    def recurrent(self) -> bool:
        """Whether it has a state."""
        return bool(self.cells)

    @property
    def stem(self) -> int:
        """Index of the first layer of the chain, behind those of the branches."""
        return find_stem(self.branches)

    @property
    def parameters(self) -> int:
        """Number of weights and biases, those of normalizations included."""
        norms = [layer.norm for layer in self.layers if isinstance(layer, Linear) and layer.norm is not None]
        return sum(part.weight.size + part.bias.size for part in (*self.layers, *norms))

    @cached_property
    def tensors(self) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
        """(weight, bias) of each layer as torch tensors that share the arrays' memory."""
        return tuple((torch.from_numpy(layer.weight), torch.from_numpy(layer.bias)) for layer in self.layers)

    def forward(self, x: Floats) -> Floats:
        """Outputs (n, outputs) for inputs (n, *input_shape), in fp32 on one CPU; PolicyError where it has a state."""
        refuse_state(self, "a forward pass without a state")
        with torch.inference_mode():
            y = torch.from_numpy(x)
            if self.branches:
                y = join(self.branches, y, self._run_layer)
            for index in range(self.stem, len(self.layers)):
                y = self._run_layer(index, y)
            return np.asarray(y.numpy())

    def _run_layer(self, index: int, y: torch.Tensor) -> torch.Tensor:
        layer, product = self.layers[index], self._products.get(index)
        if product is None or not isinstance(layer, Linear):
            y = layer.affine(y, *self.tensors[index])
        else:
            y = layer.normalize(product.multiply(y))
        return ELEMENTWISE[layer.activation].apply(y)

    @cached_property
    def _products(self) -> dict[int, Product]:
        """Of the large layers, by index."""
        return {
            index: Product(*self.tensors[index])
            for index, layer in enumerate(self.layers)
            if isinstance(layer, Linear) and layer.weight.size >= LARGE
        }

    def initial_state(self, count: int) -> State:
        """The state of `count` episodes that begin: zeros."""
        return start_state(self.layers, self.cells, count)

    def adopt(self, state: State) -> State:
        """A state of the fp32 net as this one has it: itself."""
        return state

    def step(self, x: Floats, state: State) -> tuple[Floats, State]:
        """Outputs (n, outputs) and the state behind a step, for inputs (n, *input_shape) and the state before it."""
        parts = split_state([torch.from_numpy(part) for part in state], self.cells, PARTS)
        behind: list[torch.Tensor] = []
        with torch.inference_mode():
            y = torch.from_numpy(x)
            if self.branches:
                y = join(self.branches, y, self._run_layer)
            for index, cell in list_steps(self.layers, self.cells, self.stem):
                y = self._run_layer(index, y)
                if cell is not None:
                    before = parts[index]
                    h = self.layers[index + 1].affine(before[0], *self.tensors[index + 1])
                    y, after = cell.advance(y, h, before)
                    behind += after
        return np.asarray(y.numpy()), tuple(part.numpy() for part in behind)


class HasCells(Protocol):
    """A net in any of its forms."""

    @property
    def recurrent(self) -> bool:
        """Whether it has a state."""


class HasBranches(Protocol):
    """A net in any of its forms."""

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Of the layers in front of its chain."""


def refuse_state(net: HasCells, what: str) -> None:
    """PolicyError for a net with a state, which `what` has no form for."""
    if net.recurrent:
        raise PolicyError(f"{what}: the policy is recurrent, and has no form in it")


def refuse_branches(net: HasBranches, what: str) -> None:
    """PolicyError for a net with branches, which `what`, knowing chains only, has no form for."""
    if net.branches:
        raise PolicyError(
            f"{what}: an image among the observation's parts passes layers of its own, and has no form in it"
        )


def find_norm(net: Net) -> int | None:
    """Index of the first layer that is normalized, which only floats can express; None where there is none."""
    return next((i for i, layer in enumerate(net.layers) if isinstance(layer, Linear) and layer.norm is not None), None)


def check_layer(layer: Layer, index: int) -> None:
    """Refuse wrong ranks, contradicting widths, other types than float32 and values that are not finite."""
    rank = 2 if isinstance(layer, Linear) else 4
    where = f"layer {index} ({type(layer).__name__})"
    if isinstance(layer, Linear) and layer.norm is not None:
        _check_norm(layer.norm, layer.bias.shape, where)
    if layer.weight.ndim != rank or layer.bias.shape != layer.weight.shape[:1]:
        raise PolicyError(f"{where}: weight {layer.weight.shape} and bias {layer.bias.shape} do not belong together")
    if isinstance(layer, Conv2d) and layer.stride < 1:
        raise PolicyError(f"{where}: a stride is at least 1, not {layer.stride}")
    if layer.weight.dtype != np.float32 or layer.bias.dtype != np.float32:
        raise PolicyError(f"{where}: weights must be float32, not {layer.weight.dtype} and {layer.bias.dtype}")
    if not (np.isfinite(layer.weight).all() and np.isfinite(layer.bias).all()):
        raise PolicyError(f"{where}: NaN or infinite weights; the policy diverged or its file is damaged")


def _check_norm(norm: LayerNorm, shape: tuple[int, ...], where: str) -> None:
    for array in (norm.weight, norm.bias):
        if array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            raise PolicyError(f"{where}: its normalization must be finite float32 of shape {shape}, not {array.shape}")
    if not norm.epsilon > 0:
        raise PolicyError(f"{where}: the epsilon of a normalization is positive, not {norm.epsilon}")
