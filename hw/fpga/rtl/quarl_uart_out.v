// Asynchronous serial line, 8 data bits, no parity, one stop bit; CLOCKS clock cycles a bit.
module quarl_uart_out #(
    parameter CLOCKS = 868
) (
    input clk,
    input reset,
    input valid,
    output ready,
    input [7:0] data,
    output line
);
  localparam BITS = $clog2(CLOCKS + 1);
  reg [9:0] shift;
  reg [BITS-1:0] timer;
  reg [3:0] left;
  assign ready = left == 0;
  assign line  = shift[0];

  always @(posedge clk)
    if (reset) begin
      shift <= 10'h3ff;
      left  <= 0;
    end else if (ready) begin
      if (valid) begin
        shift <= {1'b1, data, 1'b0};
        timer <= CLOCKS - 1;
        left  <= 10;
      end
    end else if (timer != 0) timer <= timer - 1'b1;
    else begin
      timer <= CLOCKS - 1;
      shift <= {1'b1, shift[9:1]};
      left  <= left - 1'b1;
    end
endmodule
