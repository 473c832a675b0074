#include "apps/nominal_recording.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/unfinished_file.hpp"
#include "traces/nominal_trace.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

// A nominal trace has so many logits, over all query heads, at most: about a second of replay.
constexpr double kMostLogits = 1e8;
constexpr std::uint32_t kMostNominalOutput = 1024;
constexpr std::uint32_t kMostNominalHeads = 8;

// Where a policy leaves the first layers alone there is one layer more.
NominalTrace nominal_trace(const WorkloadRequest& request, std::uint64_t seed) {
  NominalTrace trace;
  trace.seed = seed;
  trace.query_heads = std::min(request.model.group(), kMostNominalHeads);
  for (const PolicySpec& point : request.points) {
    const std::uint32_t dense = policy_info(point.name).traits(point).dense_layers;
    if (dense < request.model.layers) trace.layers = std::max(trace.layers, dense + 1);
  }
  const double longest = std::sqrt(2 * kMostLogits / trace.query_heads / trace.layers);
  trace.prompt = static_cast<std::uint32_t>(std::min<double>(request.prompt, longest));
  trace.output = std::min(request.output, kMostNominalOutput);
  return trace;
}

// A budget in tokens must still be less than the prompt where it was: half of what was cut, or its share of the prompt.
void shrink(Budget& budget, std::uint32_t prompt, std::uint32_t nominal) {
  if (budget.kind != Budget::Kind::kTokens || prompt == nominal || 2 * budget.value <= nominal) return;
  budget.value = std::max(1.0, std::round(nominal * std::max(0.5, budget.value / prompt)));
}

fs::path new_folder() {
  std::error_code error;
  const fs::path where = fs::temp_directory_path(error);
  if (error) {
    throw usage_error("the folder for temporary files is not there").note("TMPDIR in the environment may name another");
  }
  std::string name = (where / "kvroof-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    throw Error(fmt::format("{}: no folder for temporary files can be made there: {}", where.string(),
                            std::strerror(errno)))
        .note("TMPDIR in the environment names another");
  }
  return name;
}

}  // namespace

NominalRecording::NominalRecording(const WorkloadRequest& request, std::uint64_t seed)
    : folder_(new_folder()), points_(request.points) {
  try {
    remove_at_signals(folder_);
    const NominalTrace trace = nominal_trace(request, seed);
    for (PolicySpec& point : points_) shrink(point.budget, request.prompt, trace.prompt);
    write_nominal_trace(path(), trace);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
    throw;
  }
}

NominalRecording::~NominalRecording() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
  remove_at_signals({});
}

}  // namespace kvroof
