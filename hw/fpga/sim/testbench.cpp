// Drives a design from a file of observations and writes down every action and when things happened.
//
//   testbench INPUTS OUTPUTS COUNT GAP STALL SEED
//
// INPUTS   COUNT observations of IN_BEATS beats of IN_WORDS 32-bit words
// OUTPUTS  for each: the cycle that took its first beat, the cycle that showed its action, the cycle that took it
//          (64 bits each), and OUT_BEATS * OUT_WORDS 32-bit words
// GAP      of 256 cycles, how many offer no input;  STALL: how many take no output
//
// IN_BEATS, IN_WORDS, OUT_BEATS and OUT_WORDS (of a beat) are macros; with AXIS or TANH, `policy_axis`
// or `policy_tanh` takes the place of `policy`.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "verilated.h"

#ifdef AXIS
#include "Vpolicy_axis.h"
struct Device : Vpolicy_axis {
  auto& clock() { return aclk; }
  void set_reset(bool on) { aresetn = !on; }
  auto& valid_in() { return s_axis_tvalid; }
  auto& ready_in() { return s_axis_tready; }
  auto& data_in() { return s_axis_tdata; }
  void set_last(bool last) { s_axis_tlast = last; }
  auto& valid_out() { return m_axis_tvalid; }
  auto& ready_out() { return m_axis_tready; }
  auto& data_out() { return m_axis_tdata; }
  bool framed(bool last) { return m_axis_tlast == last && !framing_error; }
};
#else
#ifdef TANH
#include "Vpolicy_tanh.h"
struct Device : Vpolicy_tanh {
  bool framed(bool last) { return out_last == last; }
#else
#include "Vpolicy.h"
struct Device : Vpolicy {
  bool framed(bool) { return true; }
#endif
  auto& clock() { return clk; }
  void set_reset(bool on) { reset = on; }
  auto& valid_in() { return in_valid; }
  auto& ready_in() { return in_ready; }
  auto& data_in() { return in_data; }
  void set_last(bool) {}
  auto& valid_out() { return out_valid; }
  auto& ready_out() { return out_ready; }
  auto& data_out() { return out_data; }
};
#endif

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
  Device device;
  const auto rise = [&device] {
    device.clock() = 1;
    device.eval();
  };
  const auto settle = [&device] {
    device.clock() = 0;
    device.eval();
  };
  device.set_reset(true);
  device.valid_in() = device.ready_out() = 0;
  for (int i = 0; i < 8; ++i) {
    settle();
    rise();
  }
  device.set_reset(false);

  const long beats = count * IN_BEATS;
  long beat = 0, taken = 0;
  int part = 0;  // beat of the action
  uint64_t idle = 0, shown = 0;
  bool offering = false, showing = false;
  std::deque<uint64_t> started;
  std::vector<uint32_t> words(OUT_BEATS * OUT_WORDS + 1);
  for (uint64_t cycle = 0; taken < count; ++cycle) {
    if (!offering) offering = beat < beats && (random() & 255) >= gap;
    device.valid_in() = offering;
    device.set_last(beat % IN_BEATS == IN_BEATS - 1);
    if (offering) set_port(device.data_in(), &inputs[beat * IN_WORDS]);
    device.ready_out() = (random() & 255) >= stall;
    settle();
    ++idle;
    if (offering && device.ready_in()) {
      if (beat % IN_BEATS == 0) started.push_back(cycle);
      ++beat;
      offering = false;
      idle = 0;
    }
    if (device.valid_out() && !showing) {
      showing = true;
      shown = cycle;
    }
    if (device.valid_out() && device.ready_out()) {
      if (started.empty() || !device.framed(part == OUT_BEATS - 1)) {
        std::fprintf(stderr, "action %ld: no observation, or a beat out of its frame\n", taken);
        return 3;
      }
      get_port(device.data_out(), &words[part * OUT_WORDS]);
      idle = 0;
      if (++part == OUT_BEATS) {
        const uint64_t times[3] = {started.front(), shown, cycle};
        std::fwrite(times, 8, 3, out);
        std::fwrite(words.data(), 4, OUT_BEATS * OUT_WORDS, out);
        started.pop_front();
        showing = false;
        part = 0;
        ++taken;
      }
    }
    if (idle > 1000000) {
      std::fprintf(stderr, "no progress for a million cycles: %ld beats taken, %ld actions\n", beat, taken);
      return 3;
    }
    rise();
  }
  return std::fclose(out) ? 2 : 0;
}
