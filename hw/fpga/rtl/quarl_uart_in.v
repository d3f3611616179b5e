// Asynchronous serial line, 8 data bits, no parity, one stop bit; CLOCKS clock cycles a bit.
module quarl_uart_in #(
    parameter CLOCKS = 868
) (
    input clk,
    input reset,
    input line,
    output reg valid,  // for one cycle
    output reg [7:0] data
);
  localparam BITS = $clog2(CLOCKS + 1);
  reg [1:0] level;  // the line belongs to another clock
  reg [BITS-1:0] timer;
  reg [3:0] left;  // bits to come, the stop bit included; 0: idle

  always @(posedge clk) begin
    level <= {level[0], line};
    valid <= 1'b0;
    if (reset) begin
      level <= 2'b11;
      left  <= 0;
    end else if (left == 0) begin
      if (!level[1]) begin
        left  <= 10;  // and the start bit
        timer <= CLOCKS / 2;
      end
    end else if (timer != 0) timer <= timer - 1'b1;
    else begin
      timer <= CLOCKS - 1;
      left  <= left - 1'b1;
      if (left == 10 && level[1]) left <= 0;  // no start bit but a glitch
      else if (left == 1) valid <= level[1];  // without a stop bit, the byte is lost
      else data <= {level[1], data[7:1]};
    end
  end
endmodule
