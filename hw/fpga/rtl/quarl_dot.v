// Sum of TERMS products, through a pipelined adder tree.
//
// The products are level 0 of the tree, and a register follows every LEVELS levels, so the sum appears
// ceil((1 + clog2(TERMS)) / LEVELS) cycles after its inputs. `keep` accompanies the sum into the last register: without
// it the sum is zero, which leaves an accumulator as it is.
module quarl_dot #(
    parameter TERMS = 1,
    parameter IN_BITS = 3,
    parameter IN_SIGNED = 0,
    parameter WEIGHT_BITS = 3,
    parameter SUM_BITS = 8,  // of the result, which has to fit
    parameter LEVELS = 2,
    parameter DSP = 1
) (
    input clk,
    input enable,
    input keep,
    input [TERMS*IN_BITS-1:0] values,
    input [TERMS*WEIGHT_BITS-1:0] weights,
    output [SUM_BITS-1:0] sum
);
  localparam DEPTH = $clog2(TERMS);
  localparam PRODUCT_BITS = IN_BITS + WEIGHT_BITS;
  localparam TOP_BITS = PRODUCT_BITS + DEPTH;

  genvar level, i;
  generate
    for (level = 0; level <= DEPTH; level = level + 1) begin : tree
      localparam COUNT = (TERMS + (1 << level) - 1) >> level;
      localparam BITS = PRODUCT_BITS + level;
      wire [COUNT*BITS-1:0] now;
      wire [COUNT*BITS-1:0] held;
      if (level == 0) begin : leaves
        for (i = 0; i < TERMS; i = i + 1) begin : leaf
          quarl_product #(
              .IN_BITS(IN_BITS),
              .IN_SIGNED(IN_SIGNED),
              .WEIGHT_BITS(WEIGHT_BITS),
              .DSP(DSP)
          ) product (
              .value(values[i*IN_BITS+:IN_BITS]),
              .weight(weights[i*WEIGHT_BITS+:WEIGHT_BITS]),
              .product(now[i*BITS+:BITS])
          );
        end
      end else begin : nodes
        localparam BELOW = (TERMS + (1 << (level - 1)) - 1) >> (level - 1);
        for (i = 0; i < COUNT; i = i + 1) begin : node
          wire signed [BITS-2:0] left = tree[level-1].held[2*i*(BITS-1)+:BITS-1];
          if (2 * i + 1 < BELOW) begin : pair
            wire signed [BITS-2:0] right = tree[level-1].held[(2*i+1)*(BITS-1)+:BITS-1];
            assign now[i*BITS+:BITS] = {left[BITS-2], left} + {right[BITS-2], right};
          end else begin : single
            assign now[i*BITS+:BITS] = {left[BITS-2], left};
          end
        end
      end
      if (level == DEPTH) begin : last
        reg [BITS-1:0] total;
        always @(posedge clk) if (enable) total <= keep ? now : {BITS{1'b0}};
        assign held = total;
      end else if ((level + 1) % LEVELS == 0) begin : registered
        reg [COUNT*BITS-1:0] stage;
        always @(posedge clk) if (enable) stage <= now;
        assign held = stage;
      end else begin : combinational
        assign held = now;
      end
    end
    if (SUM_BITS <= TOP_BITS) begin : narrow
      assign sum = tree[DEPTH].held[SUM_BITS-1:0];
    end else begin : wide
      assign sum = {{SUM_BITS - TOP_BITS{tree[DEPTH].held[TOP_BITS-1]}}, tree[DEPTH].held};
    end
  endgenerate
endmodule
