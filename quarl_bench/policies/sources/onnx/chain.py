"""What a graph comes to: a chain of layers, with what stands in front of them and behind."""

from dataclasses import dataclass

from quarl_bench.policies.observation import Normalization
from quarl_bench.quantization.net import Layer
from quarl_bench.quantization.recurrent.cells import Cell


@dataclass(frozen=True, eq=False)
class Chain:
    """What a graph computes: activations(layers(clip(scale * x + shift))), and clips of the outputs, if any.

    `normalization` has the width of a vector, or of one number for all.
    """

    layers: tuple[Layer, ...]
    normalization: Normalization | None
    bounds: tuple[float, float] | None
    indices: bool  # whether it ends in an ArgMax or a Softmax
    cells: tuple[Cell, ...] = ()
    shape: tuple[int, ...] = ()  # of an observation, where the file says it
    turned: bool = False  # whether it puts the channels of an image first, which stand last in what it reads
