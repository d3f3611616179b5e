// Matrix-vector unit for a vector that is there as a whole: LANES complete rows a cycle, BEATS cycles.
//
// PIPELINED, for a design whose vectors all take one beat: every cycle takes a vector, and `enable` moves all of them.
//
// Links between layers are valid/ready streams whose producer looks at `next_ready` once, before the first beat of a
// vector: `done` (last beat left the layer) keeps a second vector from being sent on a ready that is out of date.
module quarl_rows #(
    parameter INPUTS = 4,
    parameter IN_BITS = 8,
    parameter IN_SIGNED = 1,
    parameter LANES = 1,
    parameter BEATS = 2,
    parameter BEAT_BITS = 1,
    parameter WEIGHT_BITS = 3,
    parameter SUM_BITS = 13,
    parameter LEVELS = 2,
    parameter DSP = 1,
    parameter PIPELINED = 0
) (
    input clk,
    input reset,
    input enable,
    input in_valid,
    output in_ready,
    input [INPUTS*IN_BITS-1:0] in_data,
    output [BEAT_BITS-1:0] next_row,  // address of the weights, one cycle ahead
    input [LANES*INPUTS*WEIGHT_BITS-1:0] weights,
    input next_ready,
    input done,
    output out_valid,
    output out_last,
    output [LANES*SUM_BITS-1:0] sums
);
  localparam DELAY = (1 + $clog2(INPUTS) + LEVELS - 1) / LEVELS;

  reg flying;
  wire start = next_ready && (PIPELINED || !flying);
  wire step, first, last, keep;
  wire [INPUTS*IN_BITS-1:0] values;

  always @(posedge clk)
    if (reset) flying <= 1'b0;
    else if (step && first) flying <= 1'b1;
    else if (done) flying <= 1'b0;

  generate
    if (BEATS == 1) begin : at_once
      assign in_ready = start;
      assign step = in_valid && start;
      assign first = 1'b1;
      assign last = 1'b1;
      assign next_row = {BEAT_BITS{1'b0}};
      assign values = in_data;
    end else begin : folded
      reg full;
      reg [BEAT_BITS-1:0] row;
      reg [INPUTS*IN_BITS-1:0] held;
      assign in_ready = !full;
      assign first = row == 0;
      assign last = row == BEATS - 1;
      assign step = full && (start || !first);
      assign next_row = reset ? {BEAT_BITS{1'b0}} : !step ? row : last ? {BEAT_BITS{1'b0}} : row + 1'b1;
      assign values = held;
      always @(posedge clk) begin
        row <= next_row;
        if (in_ready) held <= in_data;
        if (reset) full <= 1'b0;
        else if (in_ready) full <= in_valid;
        else if (step && last) full <= 1'b0;
      end
    end
    if (DELAY == 1) begin : undelayed
      assign keep = step;
    end else begin : delayed
      quarl_delay #(.BITS(1), .CYCLES(DELAY - 1)) delay_keep (.clk(clk), .reset(reset), .enable(enable), .in(step), .out(keep));
    end
  endgenerate

  quarl_delay #(.BITS(2), .CYCLES(DELAY)) delay_valid (
      .clk(clk), .reset(reset), .enable(enable), .in({step && last, step}), .out({out_last, out_valid})
  );

  genvar lane;
  generate
    for (lane = 0; lane < LANES; lane = lane + 1) begin : rows
      quarl_dot #(
          .TERMS(INPUTS),
          .IN_BITS(IN_BITS),
          .IN_SIGNED(IN_SIGNED),
          .WEIGHT_BITS(WEIGHT_BITS),
          .SUM_BITS(SUM_BITS),
          .LEVELS(LEVELS),
          .DSP(DSP)
      ) dot (
          .clk(clk),
          .enable(enable),
          .keep(keep),
          .values(values),
          .weights(weights[lane*INPUTS*WEIGHT_BITS+:INPUTS*WEIGHT_BITS]),
          .sum(sums[lane*SUM_BITS+:SUM_BITS])
      );
    end
  endgenerate
endmodule
