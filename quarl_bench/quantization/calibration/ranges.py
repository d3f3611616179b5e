"""What the activations of a net cover in the states that calibrate it."""

from dataclasses import dataclass

import torch

from quarl_bench.quantization.activations import ELEMENTWISE, is_tabled
from quarl_bench.quantization.branches import join, list_places
from quarl_bench.quantization.calibration.formats import Range
from quarl_bench.quantization.calibration.observers import observe
from quarl_bench.quantization.net import Floats, Net
from quarl_bench.quantization.recurrent.cells import NO_STATE, PARTS, State, list_steps, split_state
from quarl_bench.quantization.recurrent.ranges import CellRanges, observe_cell
from quarl_bench.quantization.scheme import Scheme


@dataclass(frozen=True)
class Ranges:
    """What the activations of a net cover: its input, and every layer's output (in front of a table, behind a ReLU).

    The two layers of a recurrent cell are ruled by what `cells` says of it. Where branches take the input apart,
    `input` is what they are joined to, and `parts` what each takes.
    """

    input: Range
    outputs: tuple[Range, ...]
    cells: tuple[CellRanges, ...] = ()
    parts: tuple[Range, ...] = ()


def observe_activations(net: Net, scheme: Scheme, inputs: Floats, state: State = NO_STATE) -> Ranges:
    """What the activations of `net` cover at `inputs` (n, *input_shape), as the scheme's observer says.

    The net is rewritten already. `state` is that of a recurrent one at these inputs.
    """
    spans: list[Range] = []
    cells: list[CellRanges] = []
    seen_parts = tuple(observe(inputs[:, place.values], scheme) for place in list_places(net.branches))

    def watch(index: int, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        layer = net.layers[index]
        affine = layer.affine(values, *net.tensors[index])
        behind = ELEMENTWISE[layer.activation].apply(affine)
        # The range in front of a table is its own; a ReLU is fused, so the range behind it counts.
        seen = affine if is_tabled(layer.activation) else behind
        spans.append(observe(seen.numpy(), scheme))
        return affine, behind

    values = torch.from_numpy(inputs)
    if net.branches:
        with torch.inference_mode():
            values = join(net.branches, values, lambda index, y: watch(index, y)[1])
        inputs = values.numpy()
    parts = split_state([torch.from_numpy(part) for part in state], net.cells, PARTS)
    for index, cell in list_steps(net.layers, net.cells, net.stem):
        with torch.inference_mode():
            affine, values = watch(index, values)
            if cell is not None:
                recalled = net.layers[index + 1].affine(parts[index][0], *net.tensors[index + 1])
                spans.append(spans[-1])
                values, found = observe_cell(cell, affine, recalled, [*parts[index]], scheme)
                cells.append(found)
    joined = observe(inputs, scheme)
    return Ranges(joined, tuple(spans), tuple(cells), seen_parts)
