#include "apps/prediction/nominal_recording.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/cli/unfinished_file.hpp"
#include "sim/core/text.hpp"
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

// Tokens that the parameters of a policy name (sinks=4, recent=32, …), in all.
double named_tokens(const PolicySpec& point) {
  double sum = 0;
  for (const ParamInfo& param : policy_info(point.name).params) {
    const std::optional<std::string_view> value = point.find(param.name);
    if (!value || !param.values.starts_with("tokens")) continue;
    if (const double tokens = parse_number<double>(*value).value_or(0); tokens >= 1) sum += tokens;
  }
  return sum;
}

// A budget in tokens must still be less than the prompt where it was, and have room for what parameters name: half of
// the cut prompt, its share of the prompt, or twice those tokens, for which the prompt is then cut less.
void shrink(PolicySpec& point, std::uint32_t whole, NominalTrace& trace) {
  const double budget = point.budget.value;
  if (point.budget.kind != Budget::Kind::kTokens || whole == trace.prompt || 2 * budget <= trace.prompt) return;
  const double cut = std::round(trace.prompt * std::max(0.5, budget / whole));
  const double least = std::min(budget, 2 * named_tokens(point));
  point.budget.value = std::max({1.0, cut, least});
  if (least > cut) trace.prompt = static_cast<std::uint32_t>(std::min<double>(whole, 2 * least));
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
    NominalTrace trace = nominal_trace(request, seed);
    for (PolicySpec& point : points_) shrink(point, request.prompt, trace);
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
