// The parts of the suite: each is a run of the program of its own, so that one that dies takes no other with it.
#pragma once

#include <filesystem>
#include <string>

#include "kernels/cuda/measure/bench_device.hpp"
#include "tests/gpu/suite/report.hpp"

namespace kvroof::suite {

struct Options {
  std::filesystem::path out;   // the part's JSON; empty: none
  std::filesystem::path data;  // holds tests/golden/models, models/demo and catalog/models
  double seconds = 60;         // rows that have not begun by then are cut
  std::string ended;           // why an earlier process of the part, whose rows the JSON has, came to no end; or empty
  bool small = false;          // sizes that an emulator can bear
  std::uint32_t seed = 0;      // of the random inputs
  cuda::DeviceFacts device;
  cuda::CardFacts card;
};

// What main() returns.
int suite_program(int count, char** words);

void check_kernels(const Options& options, Report& report);
void check_engine(const Options& options, Report& report);
void measure_limits(const Options& options, Report& report);
void measure_steps(const Options& options, Report& report);
void measure_paper(const Options& options, Report& report);
void check_recorder(const Options& options, Report& report);
// Before the device is used for the first time: what records must be there by then.
void prepare_recorder();

// Groups of check_kernels.
void check_attention(const Options& options, Report& report);
void check_linear(const Options& options, Report& report);
void check_prompt_attention(const Options& options, Report& report);
void check_prepare(const Options& options, Report& report);
void check_rows(const Options& options, Report& report);
void check_choice(const Options& options, Report& report);
void check_states(const Options& options, Report& report);

// A group of check_engine.
void check_launch_modes(const Options& options, Report& report);

// Groups of measure_limits; each row is timed for so long.
inline double seconds_a_row(const Options& options) { return options.small ? 0.01 : 0.25; }
// Bytes/s, read and written, of the fastest large copy that was measured; every share is of it.
double measure_bandwidth(const Options& options, Report& report);
// The same of one large copy, for the other parts.
double measure_copy(const Options& options);
void measure_linear(const Options& options, Report& report, double limit);
void measure_attention(const Options& options, Report& report, double limit);
void measure_moves(const Options& options, Report& report, double limit);
void measure_choice(const Options& options, Report& report, double limit);

}  // namespace kvroof::suite
