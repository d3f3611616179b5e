"""The header of a policy in C99, which documents the call."""

import math
from collections.abc import Iterator
from itertools import accumulate

from quarl_bench.backends.base import channel_last, storage_type
from quarl_bench.backends.c.choice import count_actions, declare_head, describe_action, is_plain
from quarl_bench.backends.template import fill, fill_part
from quarl_bench.policies.head import ActionHead
from quarl_bench.quantization.parameters import ActivationFormat, PartedFormat


def write_header(
    shapes: list[tuple[int, ...]],
    source: ActivationFormat | None,
    output: ActivationFormat | None,
    head: ActionHead,
    state: int = 0,
) -> str:
    """policy.h: what the net takes and gives, and how to call it; formats are None for float32.

    `state` values stand behind both in a recurrent policy.
    """
    integer = source is not None
    inputs, outputs = (_widen(channel_last(shape), state) for shape in (shapes[0], shapes[-1]))
    tabled = output is not None and not output.wide
    return fill(
        "policy.h",
        arithmetic="in integers from input to output" if integer else "in float32",
        integer=int(integer),
        inputs=math.prod(inputs),
        input_shape=f"{inputs}{' as (height, width, channels)' if len(inputs) == 3 else ''}",
        input_format=_explain(source),
        input_type=_c_type(source),
        input_port=_define_port("INPUT", source, inputs),
        outputs=math.prod(outputs),
        output_shape=outputs,
        output_format=_explain(output),
        output_type=_c_type(output),
        output_port=_define_port("OUTPUT", output, outputs),
        state=fill_part("state.h", state=state) if state else "#define POLICY_STATE 0",
        actions=1 if is_plain(head) else count_actions(head, math.prod(shapes[-1])),
        action=describe_action(head, tabled),
        declaration=f"{declare_head(head)};",
    )


def _widen(shape: tuple[int, ...], state: int) -> tuple[int, ...]:
    return (*shape[:-1], shape[-1] + state)


def _define_port(name: str, format: ActivationFormat | None, shape: tuple[int, ...]) -> str:
    scale, zero_point = ("0.0", 0) if format is None else (float(format.scale).hex(), format.zero_point)
    sides = ", ".join(map(str, shape))
    return (
        f"#define POLICY_{name}_SHAPE {{{sides}}}\n#define POLICY_{name}_SCALE {scale}f\n"
        f"#define POLICY_{name}_ZERO_POINT ({zero_point})"
    )


def _explain(format: ActivationFormat | None) -> str:
    if format is None:
        return "float32"
    integers = format.format
    return f"{integers.minimum} .. {integers.maximum} for real numbers" + "".join(_explain_numbers(format))


def _explain_numbers(format: ActivationFormat) -> Iterator[str]:
    """A line for a port, or for each of its parts."""
    if isinstance(format, PartedFormat):
        ends = [*accumulate(format.widths, initial=0)]
        for part, first, behind in zip(format.parts, ends, ends[1:], strict=False):
            yield f"{next(_explain_numbers(part))}; values {first} to {behind - 1}"
        return
    scale = float(format.scale)
    yield f"\n *          (integer - ({format.zero_point})) * {scale.hex()} ({scale:.9g})"


def _c_type(format: ActivationFormat | None) -> str:
    return "float" if format is None else f"{storage_type(format).name}_t"
