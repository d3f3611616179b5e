"""Nodes that move the axes of a tensor: which of them leave one observation's numbers in their order.

A graph with a memory reads one observation at a time. All of its axes but the features' are then of size 1, and may
come and go as long as the features stay the last axis.
"""

import numpy as np

from quarl_bench.policies.sources.onnx.nodes import Array, Node

SHAPES = ("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Transpose")


def is_plain(node: Node, constants: dict[str, Array], *, first: bool) -> bool:
    """Whether a node only flattens what follows the batch, or turns images where it stands `first`."""
    if node.operator == "Flatten" and node.attributes.get("axis", 1) == 1:
        return True
    if node.operator == "Reshape":
        shape = constants.get(node.inputs[1])
        return shape is not None and len(shape.reshape(-1)) == 2
    return node.operator == "Transpose" and first and list(node.attributes.get("perm", [])) == [0, 3, 1, 2]


def follow_rank(node: Node, constants: dict[str, Array], rank: int, width: int) -> int:
    """How many axes one observation has behind a node, where it had `rank` and the last one is of `width` features.

    `width` is 0 where nobody has said it yet. The answer is 0 where the features do not stay the last axis.
    """
    given = node.attributes
    if node.operator == "Flatten":
        return 2 if -rank <= given.get("axis", 1) < rank else 0
    if node.operator == "Transpose":
        turned = list(given.get("perm", range(rank)[::-1]))
        return rank if sorted(turned) == list(range(rank)) and turned[-1] == rank - 1 else 0
    if node.operator == "Reshape":
        shape = constants[node.inputs[1]].reshape(-1).tolist() if node.inputs[1] in constants else [0, 0]
        kept = shape[-1:] in ([-1], [width or -1]) or (shape[-1:] == [0] and len(shape) == rank)
        return len(shape) if kept and set(shape[:-1]) <= {-1, 0, 1} else 0
    named = node.inputs[1] if len(node.inputs) > 1 else ""
    axes = [int(axis) for axis in given.get("axes", constants[named].reshape(-1) if named in constants else [])]
    behind = rank + len(axes) * (1 if node.operator == "Unsqueeze" else -1)
    places = {axis % max(rank, behind) for axis in axes if -max(rank, behind) <= axis < max(rank, behind)}
    return behind if axes and len(places) == len(axes) and max(rank, behind) - 1 not in places else 0


def is_last(axis: int, rank: int) -> bool:
    """Whether an axis is the features'; without a memory a tensor has two."""
    return axis in (-1, (rank or 2) - 1)


def takes_the_only(node: Node, constants: dict[str, Array]) -> bool:
    """Whether a Gather takes the one entry of an axis of size 1, and leaves the axis out."""
    index = constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    return index is not None and index.ndim == 0 and int(np.asarray(index)) in (0, -1)
