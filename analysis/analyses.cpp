// The table of all analyses: a new one is a new file and a line in each of the two lists here.
#include <string>
#include <vector>

#include "analysis/analysis.hpp"
#include "sim/core/suggest.hpp"

namespace kvroof {

AnalysisInfo mass_analysis();
AnalysisInfo sparsity_analysis();
AnalysisInfo persistence_analysis();
AnalysisInfo overlap_analysis();
AnalysisInfo entropy_analysis();
AnalysisInfo power_law_analysis();
AnalysisInfo reuse_analysis();
AnalysisInfo change_ratio_analysis();
AnalysisInfo recency_analysis();
AnalysisInfo policy_analysis();
AnalysisInfo bound_analysis();

std::span<const AnalysisInfo> analysis_table() {
  static const std::vector<AnalysisInfo> table = {
      mass_analysis(),    sparsity_analysis(),  persistence_analysis(), overlap_analysis(),
      entropy_analysis(), power_law_analysis(), reuse_analysis(),       change_ratio_analysis(),
      recency_analysis(), policy_analysis(),    bound_analysis(),
  };
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
