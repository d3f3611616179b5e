// A shift register: `out` is `in` of CYCLES enabled cycles ago. Cleared by reset.
module quarl_delay #(
    parameter BITS = 1,
    parameter CYCLES = 1
) (
    input clk,
    input reset,
    input enable,
    input [BITS-1:0] in,
    output [BITS-1:0] out
);
  reg [CYCLES*BITS-1:0] line;
  assign out = line[(CYCLES-1)*BITS+:BITS];
  generate
    if (CYCLES == 1) begin : single
      always @(posedge clk)
        if (reset) line <= {BITS{1'b0}};
        else if (enable) line <= in;
    end else begin : many
      always @(posedge clk)
        if (reset) line <= {CYCLES * BITS{1'b0}};
        else if (enable) line <= {line[(CYCLES-1)*BITS-1:0], in};
    end
  endgenerate
endmodule
