// The table of all analyses, in the order in which they are shown: a new one is a new file and a line here.
#include <string>
#include <vector>

#include "analysis/analysis.hpp"
#include "sim/core/suggest.hpp"

#define KVROOF_ANALYSES(line) \
  line(mass) \
  line(sparsity) \
  line(persistence) \
  line(overlap) \
  line(entropy) \
  line(power_law) \
  line(reuse) \
  line(change_ratio) \
  line(recency) \
  line(policy) \
  line(bound)

namespace kvroof {

#define KVROOF_DECLARE(name) AnalysisInfo name##_analysis();
KVROOF_ANALYSES(KVROOF_DECLARE)

std::span<const AnalysisInfo> analysis_table() {
#define KVROOF_ENTRY(name) name##_analysis(),
  static const std::vector<AnalysisInfo> table = {KVROOF_ANALYSES(KVROOF_ENTRY)};
  return table;
}

const AnalysisInfo& find_analysis(std::string_view name) {
  std::vector<std::string> known;
  for (const AnalysisInfo& info : analysis_table()) {
    if (info.name == name) return info;
    known.emplace_back(info.name);
  }
  throw usage_error(fmt::format("unknown analysis '{}'{}", name, did_you_mean(name, known)))
      .note("known: " + join(known));
}

}  // namespace kvroof
