// A shift register: `out` is `in` of CYCLES cycles ago. Cleared by reset.
module quarl_delay #(
    parameter BITS = 1,
    parameter CYCLES = 1
) (
    input clk,
    input reset,
    input [BITS-1:0] in,
    output [BITS-1:0] out
);
  reg [CYCLES*BITS-1:0] line;
  assign out = line[(CYCLES-1)*BITS+:BITS];
  generate
    if (CYCLES == 1) begin : single
      always @(posedge clk) line <= reset ? {BITS{1'b0}} : in;
    end else begin : many
      always @(posedge clk) line <= reset ? {CYCLES * BITS{1'b0}} : {line[(CYCLES-1)*BITS-1:0], in};
    end
  endgenerate
endmodule
