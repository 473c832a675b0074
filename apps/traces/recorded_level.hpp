// How far a recording came, as its notes say.
#pragma once

#include <string>

#include "traces/kernel_reader.hpp"

namespace kvroof {

// What a recording reached, and what kept it from more; an imported profile says neither.
struct RecordedLevel {
  std::string level;  // none, or the modes that were reached: trace, counters, pm
  std::string why;
};

RecordedLevel recorded_level(const KernelReader& reader, const KernelCounts& counts);

}  // namespace kvroof
