// One stage of the requantization: STEP more bits of how many thresholds a sum reaches, most significant first.
//
// `known` are the bits found so far, and `thresholds` the 2^STEP - 1 that divide what they leave open, ascending. With
// STEP the whole width, one stage compares with all thresholds at once; with 1, the stages are a binary search.
module quarl_search #(
    parameter SUM_BITS = 13,
    parameter KNOWN = 0,
    parameter STEP = 3
) (
    input clk,
    input enable,
    input [SUM_BITS-1:0] sum,
    input [KNOWN:0] known,  // with a zero on top, so that its width is never zero
    input [((1<<STEP)-1)*SUM_BITS-1:0] thresholds,
    output [KNOWN+STEP:0] found,  // for the address of the next stage's thresholds
    output reg [KNOWN+STEP:0] found_held,
    output reg [SUM_BITS-1:0] sum_held
);
  wire [1<<STEP:1] reached;  // a thermometer with a zero on top
  wire [STEP-1:0] count;
  assign reached[1<<STEP] = 1'b0;

  genvar k, bit_index, m;
  generate
    for (k = 1; k < (1 << STEP); k = k + 1) begin : compare
      assign reached[k] = $signed(sum) >= $signed(thresholds[(k-1)*SUM_BITS+:SUM_BITS]);
    end
    for (bit_index = 0; bit_index < STEP; bit_index = bit_index + 1) begin : encode
      wire [(1<<(STEP-bit_index-1))-1:0] spans;  // where the thermometer ends for this bit to be one
      for (m = 0; m < (1 << (STEP - bit_index - 1)); m = m + 1) begin : span
        assign spans[m] = reached[(2*m+1)<<bit_index] && !reached[(2*m+2)<<bit_index];
      end
      assign count[bit_index] = |spans;
    end
  endgenerate

  assign found = {known, count};
  always @(posedge clk)
    if (enable) begin
      found_held <= found;
      sum_held <= sum;
    end
endmodule
