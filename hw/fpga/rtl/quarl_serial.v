// A policy behind a serial line: requests in, answers out, every frame ended by a CRC-8 (polynomial 0x07) of all before.
//
//   'Q' crc                      identify:  'q' version, values (2 bytes), outputs (2 bytes), DESIGN (32 bytes), crc
//   'R' value... crc             run:       'r' output... cycles (4 bytes) crc
//   anything else, a wrong crc              'e' crc
//
// Numbers are little-endian. A value or output is one byte each; values are as many as BEATS beats hold. `cycles` counts
// from the first beat that the policy takes to its action. Silence of TIMEOUT cycles within a frame ends it unanswered.
module quarl_serial #(
    parameter LANES = 4,
    parameter BEATS = 1,
    parameter IN_BITS = 8,
    parameter OUTPUTS = 2,
    parameter OUT_BITS = 8,
    parameter OUT_SIGNED = 1,
    parameter [255:0] DESIGN = 0,
    parameter CLOCKS = 868,
    parameter TIMEOUT = 1 << 22
) (
    input clk,
    input reset,
    input rx,
    output tx,
    output in_valid,
    input in_ready,
    output [LANES*IN_BITS-1:0] in_data,
    input out_valid,
    output out_ready,
    input [OUTPUTS*OUT_BITS-1:0] out_data
);
  localparam VERSION = 1;
  localparam VALUES = LANES * BEATS;
  localparam [15:0] VALUES16 = VALUES;
  localparam [15:0] OUTPUTS16 = OUTPUTS;
  localparam IDENTITY_BYTES = 37;
  localparam REPLY_BYTES = IDENTITY_BYTES > OUTPUTS + 4 ? IDENTITY_BYTES : OUTPUTS + 4;

  localparam IDLE = 0, RECEIVE = 1, PLAY = 2, WAIT = 3, SEND = 4;
  reg [2:0] state;
  reg asked;  // to identify
  reg [15:0] index;
  reg [7:0] crc;
  reg [31:0] silence, cycles;
  reg [VALUES*IN_BITS-1:0] observation;
  reg [8*REPLY_BYTES-1:0] reply;
  reg [15:0] left;
  reg [7:0] kind;

  wire got, send_ready;
  wire [7:0] got_byte;
  wire [7:0] send_byte = index == 0 ? kind : left != 0 ? reply[7:0] : crc;
  wire sending = state == SEND;
  quarl_uart_in #(.CLOCKS(CLOCKS)) uart_in (.clk(clk), .reset(reset), .line(rx), .valid(got), .data(got_byte));
  quarl_uart_out #(.CLOCKS(CLOCKS)) uart_out (
      .clk(clk), .reset(reset), .valid(sending), .ready(send_ready), .data(send_byte), .line(tx)
  );

  function [7:0] next_crc(input [7:0] so_far, input [7:0] value);
    integer k;
    begin
      next_crc = so_far ^ value;
      for (k = 0; k < 8; k = k + 1) next_crc = next_crc[7] ? {next_crc[6:0], 1'b0} ^ 8'h07 : {next_crc[6:0], 1'b0};
    end
  endfunction

  assign in_valid = state == PLAY;
  assign in_data = observation[LANES*IN_BITS-1:0];
  assign out_ready = state == WAIT;

  wire [8*OUTPUTS-1:0] action;
  genvar i;
  generate
    for (i = 0; i < OUTPUTS; i = i + 1) begin : outputs
      wire [OUT_BITS-1:0] value = out_data[i*OUT_BITS+:OUT_BITS];
      if (OUT_BITS < 8) begin : extended
        assign action[8*i+:8] = {{8 - OUT_BITS{OUT_SIGNED ? value[OUT_BITS-1] : 1'b0}}, value};
      end else begin : whole
        assign action[8*i+:8] = value;
      end
    end
  endgenerate

  always @(posedge clk)
    if (reset) begin
      state <= IDLE;
      silence <= 0;
    end else
      case (state)
        IDLE: begin
          index   <= 0;
          silence <= 0;
          if (got) begin
            asked <= got_byte == "Q";
            crc   <= next_crc(8'h00, got_byte);
            if (got_byte == "Q" || got_byte == "R") state <= RECEIVE;
            else begin
              kind  <= "e";
              left  <= 0;
              crc   <= 0;
              state <= SEND;
            end
          end
        end
        RECEIVE: begin
          silence <= got ? 0 : silence + 1'b1;
          if (silence == TIMEOUT) state <= IDLE;
          else if (got && !asked && index != VALUES) begin
            observation <= {got_byte[IN_BITS-1:0], observation} >> IN_BITS;
            index <= index + 1'b1;
            crc <= next_crc(crc, got_byte);
          end else if (got) begin
            index <= 0;
            crc <= 0;
            cycles <= 0;
            left <= IDENTITY_BYTES;
            reply <= {DESIGN, OUTPUTS16, VALUES16, VERSION[7:0]};
            kind <= "q";
            state <= asked ? SEND : PLAY;
            if (got_byte != crc) begin
              kind  <= "e";
              left  <= 0;
              state <= SEND;
            end
          end
        end
        PLAY: begin
          if (in_ready) begin
            observation <= observation >> LANES * IN_BITS;
            index <= index + 1'b1;
            if (index == BEATS - 1) state <= WAIT;
          end
          if (in_ready || index != 0) cycles <= cycles + 1'b1;
        end
        WAIT: begin
          cycles <= cycles + 1'b1;
          if (out_valid) begin
            index <= 0;
            left  <= OUTPUTS + 4;
            reply <= {cycles, action};
            kind  <= "r";
            state <= SEND;
          end
        end
        default:
        if (send_ready) begin
          index <= 1;
          crc   <= next_crc(crc, send_byte);
          if (index != 0) begin
            reply <= reply >> 8;
            left  <= left - 1'b1;
            if (left == 0) state <= IDLE;
          end
        end
      endcase
endmodule
