// Gathers BEATS beats of BITS bits into one word, the first beat lowest, and holds it until it is taken.
module quarl_collect #(
    parameter BITS = 8,
    parameter BEATS = 2,
    parameter BEAT_BITS = 1
) (
    input clk,
    input reset,
    input in_valid,
    output in_ready,
    input [BITS-1:0] in_data,
    output out_valid,
    input out_ready,
    output [BEATS*BITS-1:0] out_data
);
  reg full;
  reg [BEAT_BITS-1:0] beat;
  reg [BEATS*BITS-1:0] word;
  wire accept = in_valid && in_ready;
  wire last = beat == BEATS - 1;
  assign in_ready  = !full || out_ready;
  assign out_valid = full;
  assign out_data  = word;

  always @(posedge clk)
    if (reset) begin
      full <= 1'b0;
      beat <= 0;
    end else begin
      if (accept) beat <= last ? {BEAT_BITS{1'b0}} : beat + 1'b1;
      if (accept && last) full <= 1'b1;
      else if (out_ready) full <= 1'b0;
    end

  generate
    if (BEATS == 1) begin : single
      always @(posedge clk) if (accept) word <= in_data;
    end else begin : many
      always @(posedge clk) if (accept) word <= {in_data, word[BEATS*BITS-1:BITS]};
    end
  endgenerate
endmodule
