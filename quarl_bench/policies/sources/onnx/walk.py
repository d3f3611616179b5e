"""A walk along a graph: the layers so far, and what is to be folded into one of them."""

from dataclasses import dataclass, field, replace

import numpy as np

from quarl_bench.errors import PolicyError
from quarl_bench.policies.observation import TINY, Normalization
from quarl_bench.policies.sources.onnx.nodes import Doubles, Graph, Node
from quarl_bench.quantization.activations import Activation
from quarl_bench.quantization.net import Conv2d, Layer
from quarl_bench.quantization.recurrent.cells import Cell


@dataclass(eq=False)
class Walk:
    """A place in the graph: the layers so far, and scale and shift (numbers or one per feature) not yet in one."""

    graph: Graph
    layers: list[Layer] = field(default_factory=list)
    scale: Doubles = field(default_factory=lambda: np.ones(1))
    shift: Doubles = field(default_factory=lambda: np.zeros(1))
    normalization: Normalization | None = None
    bounds: tuple[float, float] | None = None
    indices: bool = False
    cells: list[Cell] = field(default_factory=list)
    sealed: int = 0  # how many layers a cell has ended
    rank: int = 0  # of one observation so far, in a graph with cells
    turned: bool = False  # whether an image's channels, which stood last, were put first
    channels: bool = False  # whether the numbers are one for each channel of an image, and not for each feature

    @property
    def open(self) -> bool:
        """Whether the last layer's sums are still without an activation."""
        return bool(self.layers[self.sealed :]) and self.layers[-1].activation is Activation.NONE

    @property
    def width(self) -> int:
        """Features so far; 0 in front of all layers."""
        if not self.layers:
            return 0
        weight = self.layers[-1].weight
        return int(weight.shape[1] if self.sealed == len(self.layers) else weight.shape[0])

    def refuse(self, node: Node, why: str) -> PolicyError:
        """As `Graph.refuse`."""
        return self.graph.refuse(node, why)

    def move(self, node: Node, scale: Doubles, shift: Doubles) -> None:
        """Multiply what the numbers are so far, and add to it."""
        if self.bounds is not None:
            raise self.refuse(node, "follows the clip of the actions; export the network without it")
        try:
            self.scale, self.shift = self.scale * scale, self.shift * scale + shift
        except ValueError as error:
            raise self.refuse(node, f"has {scale.size} and {shift.size} numbers for {self.scale.size}") from error

    def settle(self, node: Node) -> None:
        """Fold scale and shift into the layer in front of them."""
        if (self.scale == 1).all() and (self.shift == 0).all():
            return
        if not self.open:
            raise self.refuse(node, "stands behind a scale or shift that follows an activation")
        layer = self.layers[-1]
        outputs = len(layer.bias)
        if self.scale.size not in (1, outputs) or self.shift.size not in (1, outputs):
            raise self.refuse(node, f"stands behind numbers for {self.scale.size} of {outputs} outputs")
        self.check_axis(node, isinstance(layer, Conv2d))
        scale = np.broadcast_to(self.scale, outputs)
        weight = layer.weight * scale.reshape((-1,) + (1,) * (layer.weight.ndim - 1))
        bias = layer.bias * scale + self.shift
        self.layers[-1] = replace(layer, weight=weight.astype(np.float32), bias=bias.astype(np.float32))
        self.scale, self.shift = np.ones(1), np.zeros(1)

    def check_axis(self, node: Node, image: bool) -> None:
        """Refuse numbers for each column of an image, which broadcast along another axis than channels."""
        if max(self.scale.size, self.shift.size) > 1 and self.channels is not image:
            raise self.refuse(node, "meets numbers along another axis than channels (of images) or features")

    def normalize(self, clip: float = np.inf) -> None:
        """Scale and shift in front of the first layer, as statistics of observations."""
        plain = (self.scale == 1).all() and (self.shift == 0).all()
        if (plain and clip == np.inf) or not (self.scale > 0).all():
            return
        scale, shift = np.broadcast_arrays(self.scale, self.shift)
        self.normalization = Normalization(-shift / scale, 1 / scale**2, clip, TINY)
        self.scale, self.shift = np.ones(1), np.zeros(1)
