// Matrix-vector unit for a vector that comes in beats of TERMS values: every beat is added to all OUTPUTS sums, which
// then leave LANES a cycle by moving down. Zeros move in at the top, so that the sums are clear for the next vector.
//
// Links between layers are valid/ready streams whose producer looks at `next_ready` once, before the first beat of a
// vector: `done` (last beat left the layer) keeps a second vector from being sent on a ready that is out of date.
module quarl_columns #(
    parameter TERMS = 1,
    parameter BEATS = 2,  // in
    parameter BEAT_BITS = 1,
    parameter IN_BITS = 3,
    parameter IN_SIGNED = 0,
    parameter LANES = 1,
    parameter GROUPS = 2,  // beats out
    parameter GROUP_BITS = 1,
    parameter WEIGHT_BITS = 3,
    parameter PART_BITS = 6,  // of what one beat adds
    parameter SUM_BITS = 13,
    parameter LEVELS = 2,
    parameter DSP = 1
) (
    input clk,
    input reset,
    input in_valid,
    output in_ready,
    input [TERMS*IN_BITS-1:0] in_data,
    output [BEAT_BITS-1:0] next_column,  // address of the weights, one cycle ahead
    input [GROUPS*LANES*TERMS*WEIGHT_BITS-1:0] weights,
    input next_ready,
    input done,
    output out_valid,
    output out_last,
    output [LANES*SUM_BITS-1:0] sums
);
  localparam OUTPUTS = GROUPS * LANES;
  localparam DELAY = (1 + $clog2(TERMS) + LEVELS - 1) / LEVELS;

  reg taking, waiting, step, flying;
  reg [BEAT_BITS-1:0] column;
  reg [GROUP_BITS-1:0] group;
  wire keep, summed;

  assign in_ready = taking;
  wire accept = in_valid && taking;
  wire final_column = column == BEATS - 1;
  assign next_column =
      reset ? {BEAT_BITS{1'b0}} : !accept ? column : final_column ? {BEAT_BITS{1'b0}} : column + 1'b1;

  // A register of its own drives all sums; a ready that was seen stays until beats arrive, so it may be seen early.
  wire go = (summed || waiting) && next_ready && !flying;
  assign out_valid = step;
  assign out_last  = step && group == GROUPS - 1;

  always @(posedge clk) begin
    column <= next_column;
    if (reset) begin
      taking <= 1'b1;
      waiting <= 1'b0;
      step <= 1'b0;
      flying <= 1'b0;
      group <= 0;
    end else begin
      if (accept && final_column) taking <= 1'b0;
      else if (out_last) taking <= 1'b1;
      waiting <= (summed || waiting) && !go;
      step <= go || (step && !out_last);
      if (go) flying <= 1'b1;
      else if (done) flying <= 1'b0;
      if (step) group <= out_last ? {GROUP_BITS{1'b0}} : group + 1'b1;
    end
  end

  generate
    if (DELAY == 1) begin : undelayed
      assign keep = accept;
    end else begin : delayed
      quarl_delay #(.BITS(1), .CYCLES(DELAY - 1)) delay_keep (.clk(clk), .reset(reset), .enable(1'b1), .in(accept), .out(keep));
    end
  endgenerate
  quarl_delay #(.BITS(1), .CYCLES(DELAY)) delay_end (
      .clk(clk), .reset(reset), .enable(1'b1), .in(accept && final_column), .out(summed)
  );

  wire [(OUTPUTS+LANES)*SUM_BITS-1:0] totals;
  assign totals[OUTPUTS*SUM_BITS+:LANES*SUM_BITS] = {LANES * SUM_BITS{1'b0}};
  assign sums = totals[0+:LANES*SUM_BITS];

  genvar i;
  generate
    for (i = 0; i < OUTPUTS; i = i + 1) begin : neurons
      wire signed [PART_BITS-1:0] part;
      reg [SUM_BITS-1:0] total;
      quarl_dot #(
          .TERMS(TERMS),
          .IN_BITS(IN_BITS),
          .IN_SIGNED(IN_SIGNED),
          .WEIGHT_BITS(WEIGHT_BITS),
          .SUM_BITS(PART_BITS),
          .LEVELS(LEVELS),
          .DSP(DSP)
      ) dot (
          .clk(clk),
          .enable(1'b1),
          .keep(keep),
          .values(in_data),
          .weights(weights[i*TERMS*WEIGHT_BITS+:TERMS*WEIGHT_BITS]),
          .sum(part)
      );
      // The part is zero while sums move. As the narrower operand it drives the carry chain, so that one look-up table
      // a bit holds the multiplexer and the adder.
      always @(posedge clk)
        if (reset) total <= {SUM_BITS{1'b0}};
        else total <= $signed(part) + $signed(step ? totals[(i+LANES)*SUM_BITS+:SUM_BITS] : total);
      assign totals[i*SUM_BITS+:SUM_BITS] = total;
    end
  endgenerate
endmodule
