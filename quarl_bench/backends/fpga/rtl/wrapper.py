"""The Verilog around `policy`: behind AXI streams, and behind a serial line."""

from dataclasses import dataclass
from string import Template

from quarl_bench.backends.fpga.explore.folding import FoldingPlan

AXIS_TOP = "policy_axis"
UART_TOP = "policy_uart"
BAUD = 115_200
BOARD_CLOCK = 100_000_000  # Hz, of an Arty A7
PATIENCE = 0.05  # seconds of silence that end a frame on the serial line

_AXIS = Template("""\
// The policy behind AXI4-Stream: an observation in $in_count beats of $in_width bits, the action in $out_count beats of
// $out_width bits. Both are one string of bits, value i from bit i * width of a value, low bits first$padding.
module policy_axis (
    input aclk,
    input aresetn,
    input s_axis_tvalid,
    output s_axis_tready,
    input [$in_width_top:0] s_axis_tdata,
    input s_axis_tlast,
    output m_axis_tvalid,
    input m_axis_tready,
    output [$out_width_top:0] m_axis_tdata,
    output m_axis_tlast,
    output framing_error  // tlast came early or late since reset
);
  wire in_valid, in_ready, out_valid, out_ready;
  wire [$in_top:0] in_data;
  wire [$out_top:0] out_data;

  quarl_axis #(
      .IN_WIDTH($in_width),
      .IN_COUNT($in_count),
      .IN_BITS($in_bits),
      .COLLECT($collect),
      .OUT_WIDTH($out_width),
      .OUT_COUNT($out_count),
      .OUT_BITS($out_bits)
  ) streams (
      .clk(aclk),
      .reset(!aresetn),
      .s_valid(s_axis_tvalid),
      .s_ready(s_axis_tready),
      .s_data(s_axis_tdata),
      .s_last(s_axis_tlast),
      .m_valid(m_axis_tvalid),
      .m_ready(m_axis_tready),
      .m_data(m_axis_tdata),
      .m_last(m_axis_tlast),
      .framing_error(framing_error),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );

  policy policy (
      .clk(aclk),
      .reset(!aresetn),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );
endmodule
""")

_UART = Template("""\
// The policy behind a serial line, for an Arty A7: clk is its 100 MHz oscillator, resetn its red button.
module policy_uart #(
    parameter CLOCKS = $clocks,  // a bit: $baud baud
    parameter TIMEOUT = $timeout
) (
    input clk,
    input resetn,
    input rx,
    output tx
);
  reg [1:0] level;  // the button belongs to no clock
  always @(posedge clk) level <= {level[0], !resetn};
  wire reset = level[1];
  wire in_valid, in_ready, out_valid, out_ready;
  wire [$in_top:0] in_data;
  wire [$out_top:0] out_data;

  quarl_serial #(
      .LANES($in_lanes),
      .BEATS($in_beats),
      .IN_BITS($in_bits),
      .OUTPUTS($outputs),
      .OUT_BITS($out_bits),
      .OUT_SIGNED($out_signed),
      .DESIGN(256'h$design),  // its first byte lowest
      .CLOCKS(CLOCKS),
      .TIMEOUT(TIMEOUT)
  ) serial (
      .clk(clk),
      .reset(reset),
      .rx(rx),
      .tx(tx),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );

  policy policy (
      .clk(clk),
      .reset(reset),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data(in_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data)
  );
endmodule
""")


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
    return _AXIS.substitute(
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


def write_uart(plan: FoldingPlan) -> str:
    """The Verilog module `policy_uart`: the design behind a serial line of BAUD bits a second."""
    last = plan.stages[-1]
    return _UART.substitute(
        clocks=BOARD_CLOCK // BAUD,
        baud=BAUD,
        timeout=round(PATIENCE * BOARD_CLOCK),
        in_lanes=plan.in_lanes,
        in_beats=plan.in_beats,
        in_bits=plan.in_bits,
        in_top=plan.in_lanes * plan.in_bits - 1,
        outputs=last.outputs,
        out_bits=plan.out_bits,
        out_signed=int(plan.out_signed),
        out_top=last.outputs * plan.out_bits - 1,
        design=plan.digest[::-1].hex(),
    )
