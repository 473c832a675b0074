// What `kvroof doctor` says: each thing that a run or a recording on a GPU needs, whether it is here, and what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cupti/machine.hpp"

namespace kvroof {

enum class Health : std::uint8_t {
  kOk,
  kLimited,  // kvroof works, with less
  kMissing,  // what needs it does not work
};
std::string_view name_of(Health health);

struct Finding {
  std::string item;    // a word: driver, device 0, counters, …
  Health health = Health::kOk;
  std::string found;   // versions, paths, names
  std::string remedy;  // what to do; never empty unless the health is kOk
};

struct Examination {
  std::vector<Finding> findings;
  bool has_device = false;  // the driver lists at least one
};

// `engine_problem`: why this program's CUDA back end cannot use the device (empty: it can); whether it has one at all.
// Reads files and loads libraries; changes nothing.
Examination examine(const Machine& machine, const std::optional<std::string>& engine_problem,
                    bool engine_is_built = true);

// Why counters (Range Profiler, PM sampling) may not be read by this process, with the remedy; a Finding with kOk when
// they may. NVIDIA's page on ERR_NVGPUCTRPERM.
Finding counter_permission(const Machine& machine);

}  // namespace kvroof
