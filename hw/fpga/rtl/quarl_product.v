// One input times one signed weight, combinational.
// Up to six input bits fit one look-up table per result bit; an adder's carry chain would keep tools from seeing that.
module quarl_product #(
    parameter IN_BITS = 3,
    parameter IN_SIGNED = 0,
    parameter WEIGHT_BITS = 3,
    parameter DSP = 1  // leave a multiplication that is too wide for tables to the tool; 0: add up shifted inputs
) (
    input [IN_BITS-1:0] value,
    input [WEIGHT_BITS-1:0] weight,
    output [IN_BITS+WEIGHT_BITS-1:0] product
);
  localparam BITS = IN_BITS + WEIGHT_BITS;

  localparam SMALL = BITS <= 6;
  localparam ENTRY = SMALL ? BITS : 1;  // a table that is not used is not to be computed either

  function [(ENTRY<<ENTRY)-1:0] multiply_all(input unused);
    integer index, v, w;
    begin
      multiply_all = 0;
      for (index = 0; SMALL && index < (1 << ENTRY); index = index + 1) begin
        v = index % (1 << IN_BITS);
        w = index / (1 << IN_BITS);
        if (IN_SIGNED && v >= (1 << (IN_BITS - 1))) v = v - (1 << IN_BITS);
        if (w >= (1 << (WEIGHT_BITS - 1))) w = w - (1 << WEIGHT_BITS);
        multiply_all = multiply_all | (((v * w) & ((1 << ENTRY) - 1)) << (index * ENTRY));
      end
    end
  endfunction
  localparam [(ENTRY<<ENTRY)-1:0] PRODUCTS = multiply_all(1'b0);

  generate
    if (SMALL) begin : table_of_products
      assign product = PRODUCTS[{weight, value}*BITS+:BITS];
    end else if (DSP) begin : multiplier
      wire signed [IN_BITS:0] wide = {IN_SIGNED ? value[IN_BITS-1] : 1'b0, value};
      wire signed [WEIGHT_BITS-1:0] factor = weight;
      assign product = wide * factor;
    end else begin : shifted_inputs
      wire [BITS-1:0] wide = {{WEIGHT_BITS{IN_SIGNED ? value[IN_BITS-1] : 1'b0}}, value};
      genvar k;
      for (k = 0; k < WEIGHT_BITS; k = k + 1) begin : place
        wire [BITS-1:0] shifted = weight[k] ? wide << k : {BITS{1'b0}};
        wire [BITS-1:0] total;
        if (k == 0) begin : first
          assign total = shifted;
        end else if (k < WEIGHT_BITS - 1) begin : next
          assign total = place[k-1].total + shifted;
        end else begin : sign
          assign total = place[k-1].total - shifted;
        end
      end
      assign product = place[WEIGHT_BITS-1].total;
    end
  endgenerate
endmodule
