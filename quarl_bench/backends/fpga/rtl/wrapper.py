"""The Verilog around `policy`: behind AXI streams, and behind a serial line."""

from dataclasses import dataclass

from quarl_bench.backends.fpga.explore.folding import FoldingPlan
from quarl_bench.backends.template import fill

AXIS_TOP = "policy_axis"
UART_TOP = "policy_uart"
BAUD = 115_200
BOARD_CLOCK = 100_000_000  # Hz, of an Arty A7
SILENCE_SECONDS = 0.05  # seconds of silence that end a frame on the serial line


@dataclass(frozen=True)
class StreamShape:
    """A stream: beats of one vector, and bits of a beat."""

    beats: int
    width: int

    @property
    def words(self) -> int:
        """Words of 32 bits that hold one beat, as the driver on the processor reads and writes them."""
        return -(-self.width // 32)


def axis_streams(plan: FoldingPlan, axis_bits: int) -> tuple[StreamShape, StreamShape]:
    """What `policy_axis` takes and gives for one observation."""
    beat = plan.in_lanes * plan.in_bits
    given = StreamShape(-(-plan.stages[-1].outputs * plan.out_bits // axis_bits), axis_bits)
    if plan.in_beats == 1:
        return StreamShape(-(-beat // axis_bits), axis_bits), given
    return StreamShape(plan.in_beats, -(-beat // 8) * 8), given  # a beat of the stream is one of the policy


def write_axis(plan: FoldingPlan, axis_bits: int) -> str:
    """The Verilog module `policy_axis`: the design between two AXI-Streams of `axis_bits` bits."""
    beat = plan.in_lanes * plan.in_bits
    out_bits = plan.stages[-1].outputs * plan.out_bits
    taken, given = axis_streams(plan, axis_bits)
    collect = plan.in_beats == 1
    padding = "" if collect or taken.width == beat else f"; {taken.width - beat} bits fill up an input beat"
    return fill(
        f"{AXIS_TOP}.v",
        in_width=taken.width,
        in_width_top=taken.width - 1,
        in_count=taken.beats,
        in_bits=beat,
        in_top=beat - 1,
        collect=int(collect),
        out_width=given.width,
        out_width_top=given.width - 1,
        out_count=given.beats,
        out_bits=out_bits,
        out_top=out_bits - 1,
        padding=padding,
    )


def count_action_bytes(plan: FoldingPlan) -> int:
    """Bytes of an action on the serial line."""
    return plan.stages[-1].outputs * plan.out_bytes


def write_uart(plan: FoldingPlan) -> str:
    """The Verilog module `policy_uart`: the design behind a serial line of BAUD bits a second."""
    outputs, size = plan.stages[-1].outputs, plan.out_bytes
    note = "" if size == 1 else f"\n// Each of the {outputs} outputs is {size} bytes on the line, the lowest first."
    return fill(
        f"{UART_TOP}.v",
        clocks=BOARD_CLOCK // BAUD,
        baud=BAUD,
        timeout=round(SILENCE_SECONDS * BOARD_CLOCK),
        in_lanes=plan.in_lanes,
        in_beats=plan.in_beats,
        in_bits=plan.in_bits,
        in_top=plan.in_lanes * plan.in_bits - 1,
        outputs=count_action_bytes(plan),  # the line carries bytes, and knows nothing of values that have several
        out_bits=plan.out_bits // size,
        out_signed=int(plan.out_signed),
        out_top=outputs * plan.out_bits - 1,
        note=note,
        design=plan.digest[::-1].hex(),
    )
