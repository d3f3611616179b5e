// A read-only memory with a registered output. FILE holds DEPTH hexadecimal words.
// Users address it one cycle ahead, so that `data` belongs to the value that is being worked on.
module quarl_rom #(
    parameter WIDTH = 8,
    parameter DEPTH = 2,
    parameter ADDRESS_BITS = 1,
    parameter BLOCK = 0,  // 1: block RAM, 0: look-up tables
    parameter FILE = ""
) (
    input clk,
    input enable,
    input [ADDRESS_BITS-1:0] address,
    output reg [WIDTH-1:0] data
);
  generate
    if (BLOCK) begin : block_ram
      (* rom_style = "block" *) reg [WIDTH-1:0] words[0:DEPTH-1];
      initial $readmemh(FILE, words);
      always @(posedge clk) if (enable) data <= words[address];
    end else begin : lookup_tables
`ifdef YOSYS
      (* rom_style = "logic" *)  // its "distributed" means RAM
`else
      (* rom_style = "distributed" *)
`endif
      reg [WIDTH-1:0] words[0:DEPTH-1];
      initial $readmemh(FILE, words);
      always @(posedge clk) if (enable) data <= words[address];
    end
  endgenerate
endmodule
