#include "apps/traces/recorded_level.hpp"

namespace kvroof {

RecordedLevel recorded_level(const KernelReader& reader, const KernelCounts& counts) {
  RecordedLevel recorded;
  for (const auto& [key, value] : reader.notes()) {
    if (key == "level") recorded.level = value;
    if (key == "why") recorded.why = value;
  }
  if (counts.kernels > 0 || recorded.level.empty() || !recorded.why.empty()) return recorded;
  recorded.why = counts.counters > 0 ? "kernels come from `--cupti trace`; `--by step` shows the counters"
                                     : "what was recorded launched no kernel";
  return recorded;
}

}  // namespace kvroof
