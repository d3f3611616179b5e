"""Branches as C99: a function that takes the input apart, and puts what its parts become side by side."""

import math

from quarl_bench.backends.template import fill_part
from quarl_bench.quantization.branches import list_places
from quarl_bench.quantization.integer import IntegerNet
from quarl_bench.quantization.net import Net


def write_join(net: Net | IntegerNet, shapes: list[tuple[int, ...]]) -> list[str]:
    """The function `join_parts`, which calls those of the branches' layers; nothing of a net that is a chain.

    `shapes` are those of `list_shapes`. An image of the input comes with its channels first, as in every observation
    that has parts, and is turned.
    """
    if not net.branches:
        return []
    buffers, calls, reached = [], [], 0
    for number, place in enumerate(list_places(net.branches)):
        part, source = place.branch, f"x + {place.values.start}"
        if not place.layers:
            calls.append(f"quarl_copy({source}, y + {reached}, {part.width});")
            reached += part.width
            continue
        if len(part.shape) == 3:
            buffers.append((f"part_{number}", part.width))
            calls.append(f"quarl_turn({source}, part_{number}, {part.shape[0]}, {math.prod(part.shape[1:])});")
            source = f"part_{number}"
        for index in place.layers[:-1]:
            buffers.append((f"inner_{index}", math.prod(shapes[index + 1])))
            calls.append(f"layer_{index}({source}, inner_{index});")
            source = f"inner_{index}"
        calls.append(f"layer_{place.layers[-1]}({source}, y + {reached});")
        reached += math.prod(shapes[place.layers[-1] + 1])
    kind = "quarl_byte" if isinstance(net, IntegerNet) else "float"
    declared = [f"static {kind} {name}[{size}] QUARL_ALIGN;" for name, size in buffers]
    return [fill_part("join_parts.c", type=kind, lines="\n".join(f"    {line}" for line in declared + calls))]
