// Between AXI4-Streams and a policy. With COLLECT, IN_COUNT beats become one word for the policy; without, each beat is
// passed on. The action leaves in OUT_COUNT beats.
module quarl_axis #(
    parameter IN_WIDTH = 32,
    parameter IN_COUNT = 2,
    parameter IN_BITS = 40,
    parameter COLLECT = 1,
    parameter OUT_WIDTH = 32,
    parameter OUT_COUNT = 2,
    parameter OUT_BITS = 48
) (
    input clk,
    input reset,
    input s_valid,
    output s_ready,
    input [IN_WIDTH-1:0] s_data,
    input s_last,
    output m_valid,
    input m_ready,
    output [OUT_WIDTH-1:0] m_data,
    output m_last,
    output reg framing_error,
    output in_valid,
    input in_ready,
    output [IN_BITS-1:0] in_data,
    input out_valid,
    output out_ready,
    input [OUT_BITS-1:0] out_data
);
  localparam IN_COUNT_BITS = IN_COUNT > 1 ? $clog2(IN_COUNT) : 1;
  localparam OUT_COUNT_BITS = OUT_COUNT > 1 ? $clog2(OUT_COUNT) : 1;

  reg [IN_COUNT_BITS-1:0] beat;
  wire last = beat == IN_COUNT - 1;
  always @(posedge clk)
    if (reset) begin
      beat <= 0;
      framing_error <= 1'b0;
    end else if (s_valid && s_ready) begin
      beat <= last ? {IN_COUNT_BITS{1'b0}} : beat + 1'b1;
      if (s_last != last) framing_error <= 1'b1;
    end

  generate
    if (COLLECT) begin : whole
      wire [IN_COUNT*IN_WIDTH-1:0] word;
      assign in_data = word[IN_BITS-1:0];
      quarl_collect #(.BITS(IN_WIDTH), .BEATS(IN_COUNT), .BEAT_BITS(IN_COUNT_BITS)) collect (
          .clk(clk), .reset(reset), .in_valid(s_valid), .in_ready(s_ready), .in_data(s_data),
          .out_valid(in_valid), .out_ready(in_ready), .out_data(word)
      );
    end else begin : streamed
      assign in_data  = s_data[IN_BITS-1:0];
      assign in_valid = s_valid;
      assign s_ready  = in_ready;
    end
  endgenerate

  reg [OUT_COUNT_BITS-1:0] part;
  wire [OUT_COUNT*OUT_WIDTH-1:0] action = out_data;
  assign m_valid = out_valid;
  assign m_data = action[part*OUT_WIDTH+:OUT_WIDTH];
  assign m_last = part == OUT_COUNT - 1;
  assign out_ready = m_ready && m_last;
  always @(posedge clk)
    if (reset) part <= 0;
    else if (m_valid && m_ready) part <= m_last ? {OUT_COUNT_BITS{1'b0}} : part + 1'b1;
endmodule
