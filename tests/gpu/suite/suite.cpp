// gpu_suite PART --out FILE …: one part of what kvroof checks and measures on a GPU. scripts/gpu-suite runs them all.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/measure/cold_memory.hpp"
#include "sim/core/error.hpp"
#include "tests/gpu/suite/parts.hpp"

namespace kvroof::suite {
namespace {

constexpr const char* kUsage =
    "usage: gpu_suite environment|kernels|engine|limits|steps|recorder|paper [--out FILE] [--data DIR] [--seconds S] "
    "[--small] [--seed N] [--resume WHY]\n";
constexpr int kDeviceLost = 3;  // scripts/gpu-suite runs the part again, with --resume

void check_kernels(const Options& options, Report& report) {
  check_attention(options, report);
  check_linear(options, report);
  check_prepare(options, report);
  check_rows(options, report);
  check_choice(options, report);
  check_states(options, report);
  check_prompt_attention(options, report);
}

struct Part {
  const char* name;
  void (*run)(const Options& options, Report& report);
};
constexpr Part kParts[] = {
    {"environment", [](const Options&, Report&) {}},
    {"kernels", check_kernels},
    {"engine", check_engine},
    {"limits", measure_limits},
    {"steps", measure_steps},
    {"recorder", check_recorder},
    {"paper", measure_paper},
};

Json device_json(const Options& options) {
  const cuda::CardFacts& card = options.card;
  cuda::OpenStream stream;
  return {{"name", options.device.name},
          {"compute_capability", fmt::format("{}.{}", options.device.major, options.device.minor)},
          {"multiprocessors", options.device.multiprocessors},
          {"total_bytes", options.device.total_bytes},
          {"free_bytes", options.device.free_bytes},
          {"l2_bytes", card.l2_bytes},
          {"cuda_runtime", card.runtime_version},
          {"cuda_driver", card.driver_version},
          {"highest_sm_clock_khz", card.sm_clock_khz},
          {"memory_clock_khz", card.memory_clock_khz},
          {"memory_bus_bits", card.bus_bits},
          {"ecc", card.ecc},
          {"overlap", stream.get().overlaps}};
}

int usage(const char* problem, const char* word) {
  fmt::print(stderr, "error: {} `{}`\n{}", problem, word, kUsage);
  return 2;
}

int run(int count, char** words) {
  if (count < 2) return usage("no part was named", "");
  const Part* part = nullptr;
  for (const Part& p : kParts) {
    if (std::strcmp(p.name, words[1]) == 0) part = &p;
  }
  if (part == nullptr) return usage("there is no part", words[1]);
  Options options;
  options.data = KVROOF_SOURCE_DIR;
  for (int i = 2; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--small") {
      options.small = true;
      continue;
    }
    if (i + 1 == count) return usage("no value after", words[i]);
    const char* value = words[++i];
    if (word == "--out")
      options.out = value;
    else if (word == "--data")
      options.data = value;
    else if (word == "--seconds")
      options.seconds = std::atof(value);
    else if (word == "--resume")
      options.ended = value;
    else if (word == "--seed")
      options.seed = static_cast<std::uint32_t>(std::atol(value));
    else
      return usage("there is no option", word.c_str());
  }
  if (part->run == check_recorder) prepare_recorder();
  if (const char* why = cuda::find_device(options.device)) {
    fmt::print("SKIPPED: no CUDA device ({})\n", why);
    return 77;
  }
  options.card = cuda::card_facts();
  Report report(options.out, part->name, device_json(options), options.seconds, options.ended);
  part->run(options, report);
  report.finish();
  fmt::print("{}: {} rows, {} failed, {} cut\n", part->name, report.document()["rows"].size(), report.failures(),
             report.document()["cut"].size());
  return report.failures() == 0 ? 0 : 1;
}

}  // namespace

int suite_program(int count, char** words) {
  try {
    return run(count, words);
  } catch (const DeviceLost&) {
    fmt::print(stderr, "error: the device does nothing more for this process\n");
    return kDeviceLost;
  } catch (const std::exception& problem) {
    fmt::print(stderr, "error: {}\n", problem.what());
    return 1;
  }
}

}  // namespace kvroof::suite
