// Drives `policy` from a file of observations and writes down every action and when things happened.
//
//   testbench INPUTS OUTPUTS COUNT GAP STALL SEED
//
// INPUTS   COUNT observations of IN_BEATS beats of IN_WORDS 32-bit words
// OUTPUTS  for each: the cycle that took its first beat, the cycle that showed its action, the cycle that took it
//          (64 bits each), and OUT_WORDS 32-bit words
// GAP      of 256 cycles, how many offer no input;  STALL: how many take no output
//
// IN_BEATS, IN_WORDS and OUT_WORDS are macros.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "Vpolicy.h"
#include "verilated.h"

template <typename Port>
void set_port(Port& port, const uint32_t* words) {
  port = static_cast<Port>(words[0] | (sizeof(Port) > 4 ? static_cast<uint64_t>(words[1]) << 32 : 0));
}

template <std::size_t N>
void set_port(VlWide<N>& port, const uint32_t* words) {
  for (std::size_t i = 0; i < N; ++i) port[i] = words[i];
}

template <typename Port>
void get_port(const Port& port, uint32_t* words) {
  words[0] = static_cast<uint32_t>(port);
  if (sizeof(Port) > 4) words[1] = static_cast<uint32_t>(static_cast<uint64_t>(port) >> 32);
}

template <std::size_t N>
void get_port(const VlWide<N>& port, uint32_t* words) {
  for (std::size_t i = 0; i < N; ++i) words[i] = port[i];
}

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  const long count = std::atol(argv[3]);
  const unsigned gap = std::atoi(argv[4]), stall = std::atoi(argv[5]);
  std::mt19937 random(std::atoi(argv[6]));
  std::vector<uint32_t> inputs(count * IN_BEATS * IN_WORDS);
  std::FILE* in = std::fopen(argv[1], "rb");
  std::FILE* out = std::fopen(argv[2], "wb");
  if (!in || !out || std::fread(inputs.data(), 4, inputs.size(), in) != inputs.size()) return 2;

  Verilated::commandArgs(argc, argv);
  Vpolicy policy;
  uint64_t cycle = 0;
  policy.reset = 1;
  policy.in_valid = policy.out_ready = 0;
  for (int i = 0; i < 8; ++i) {
    policy.clk = 0;
    policy.eval();
    policy.clk = 1;
    policy.eval();
  }
  policy.reset = 0;

  const long beats = count * IN_BEATS;
  long beat = 0, taken = 0;
  uint64_t idle = 0, shown = 0;
  bool offering = false, showing = false;
  std::deque<uint64_t> started;
  for (; taken < count; ++cycle) {
    if (!offering) offering = beat < beats && (random() & 255) >= gap;
    policy.in_valid = offering;
    if (offering) set_port(policy.in_data, &inputs[beat * IN_WORDS]);
    policy.out_ready = (random() & 255) >= stall;
    policy.clk = 0;
    policy.eval();
    ++idle;
    if (offering && policy.in_ready) {
      if (beat % IN_BEATS == 0) started.push_back(cycle);
      ++beat;
      offering = false;
      idle = 0;
    }
    if (policy.out_valid && !showing) {
      showing = true;
      shown = cycle;
    }
    if (policy.out_valid && policy.out_ready) {
      if (started.empty()) {
        std::fprintf(stderr, "action %ld without an observation\n", taken);
        return 3;
      }
      uint64_t times[3] = {started.front(), shown, cycle};
      uint32_t words[OUT_WORDS + 1] = {};
      get_port(policy.out_data, words);
      std::fwrite(times, 8, 3, out);
      std::fwrite(words, 4, OUT_WORDS, out);
      started.pop_front();
      showing = false;
      ++taken;
      idle = 0;
    }
    if (idle > 1000000) {
      std::fprintf(stderr, "no progress for a million cycles: %ld beats taken, %ld actions\n", beat, taken);
      return 3;
    }
    policy.clk = 1;
    policy.eval();
  }
  return std::fclose(out) ? 2 : 0;
}
