// `policy_uart` behind a pseudo-terminal: prints the terminal's name, then plays the board until its stdin closes.
//
// The serial line is simulated bit by bit, CLOCKS clock cycles each (a macro, the design's parameter as well). The clock
// stands still while the line is silent and no host writes, except for what the design needs to notice the silence.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <deque>

#include "Vpolicy_uart.h"
#include "verilated.h"

static Vpolicy_uart board;

static void tick() {
  board.clk = 0;
  board.eval();
  board.clk = 1;
  board.eval();
}

int main(int argc, char** argv) {
  Verilated::commandArgs(argc, argv);
  int host = -1, device = -1;
  char name[256];
  termios raw;
  cfmakeraw(&raw);
  // The device side stays open here, so that a host that closes it does not hang up the terminal.
  if (openpty(&host, &device, name, &raw, nullptr)) return 2;
  fcntl(host, F_SETFL, O_NONBLOCK);
  std::printf("%s\n", name);
  std::fflush(stdout);

  board.rx = 1;
  board.resetn = 0;
  for (int i = 0; i < 8; ++i) tick();
  board.resetn = 1;
  for (int i = 0; i < 8; ++i) tick();

  std::deque<int> to_board;  // levels of the line, one a bit
  unsigned frame = 0, received = 0;
  int bits = 0;
  long phase = 0, active = 0;
  for (;;) {
    uint8_t buffer[4096];
    const ssize_t count = read(host, buffer, sizeof buffer);
    for (ssize_t i = 0; i < count; ++i) {
      to_board.push_back(0);
      for (int bit = 0; bit < 8; ++bit) to_board.push_back(buffer[i] >> bit & 1);
      to_board.push_back(1);
      to_board.push_back(1);
    }
    if (to_board.empty() && active == 0) {
      pollfd waits[2] = {{host, POLLIN, 0}, {0, POLLIN, 0}};
      poll(waits, 2, 20);
      if (waits[1].revents && read(0, buffer, 1) <= 0) return 0;
      active = 16;  // a little time passes, which is how the design notices silence
    }
    if (!to_board.empty() || bits) active = 64;
    else if (active > 0) --active;

    // One bit of the line in each direction.
    board.rx = to_board.empty() ? 1 : to_board.front();
    if (!to_board.empty()) to_board.pop_front();
    for (int clock = 0; clock < CLOCKS; ++clock) {
      tick();
      if (bits == 0) {
        if (board.tx == 0) {
          bits = 10;
          phase = CLOCKS / 2;
          received = 0;
          frame = 0;
        }
      } else if (phase-- == 0) {
        phase = CLOCKS - 1;
        received |= static_cast<unsigned>(board.tx) << frame++;
        if (--bits == 0) {
          const uint8_t byte = received >> 1 & 255;
          active = 64;
          while (write(host, &byte, 1) < 0) usleep(1000);
        }
      }
    }
  }
}
