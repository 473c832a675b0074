#include "apps/prediction/nominal_recording.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "apps/cli/unfinished_file.hpp"
#include "sim/core/text.hpp"
#include "sim/policy/layer_budgets.hpp"

namespace fs = std::filesystem;

namespace kvroof {
namespace {

// A nominal trace has so many logits, over all query heads, at most: about a second of replay.
constexpr double kMostLogits = 1e8;
constexpr std::uint32_t kMostNominalOutput = 1024;
constexpr std::uint32_t kMostNominalHeads = 8;

// Not where many tokens go at once: layers with other budgets are then full at other steps, and what one holds at a
// step of a shorter run is no share of what another holds at that of a longer one.
bool needs_each_layer(const PolicySpec& point, const PolicyTraits& traits) {
  const PolicyInfo& info = policy_info(point.name);
  const bool drops_many = info.recipe != nullptr && info.recipe(point).kind == ScoreRecipe::Kind::kCounts;
  return traits.differs_by_depth() && !drops_many;
}

// The longest prompt whose logits a replay of one policy on `layers` layers may take. Of policies that look at the last
// rows alone it is no triangle of logits but a strip; reading the tokens costs as much as a few rows do.
double longest_prompt(const PolicyTraits& traits, bool by_depth, std::uint32_t query_heads, std::uint32_t layers) {
  constexpr std::uint32_t kLeastRows = 8;
  const double logits = kMostLogits / query_heads / layers;
  const double triangle = std::sqrt(2 * logits);
  if (!by_depth || traits.rows == RowNeed::kAll) return triangle;
  return std::max(triangle, logits / std::max(kLeastRows, traits.last_rows));
}

// The layers that have to be replayed of a policy whose budgets differ from layer to layer: all, or fewer where they
// have one window and a long prompt would be cut, for budgets of few tokens round off.
std::uint32_t copies_of_layer(const WorkloadRequest& request, const PolicyTraits& traits, std::uint32_t query_heads) {
  constexpr std::uint32_t kEnough = 16;
  const ModelShape& model = request.model;
  const bool alike = model.compressed || std::ranges::adjacent_find(model.layer_windows, std::ranges::not_equal_to()) ==
                                             model.layer_windows.end();
  const bool whole = longest_prompt(traits, true, query_heads, model.layers) >= request.prompt;
  return whole || !alike ? model.layers : std::min(model.layers, kEnough);
}

// Their windows, cut as the budgets are: layers that are given more than their window shows hold that alone.
std::vector<std::uint32_t> windows_of_copies(const ModelShape& model, std::uint32_t copies, double cut) {
  std::vector<std::uint32_t> windows;
  for (std::uint32_t layer = 0; layer < copies; ++layer) {
    const double window = model.compressed ? 0 : cut * model.window(layer);
    windows.push_back(window > 0 ? std::max(1U, static_cast<std::uint32_t>(std::lround(window))) : 0);
  }
  return windows;
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

// What a budget may at most be of a cut prompt: the layer that is given most then gets no more than the prompt.
double most_of_prompt(const PolicySpec& point, const PolicyTraits& traits, std::uint32_t layers) {
  if (traits.layer_shares.empty() || layers == 0) return 0.5;
  const std::vector<double> shares = layer_shares(point, layers);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  return std::min(0.5, sum / layers / std::ranges::max(shares));
}

// A budget in tokens must still be less than the prompt where it was, and have room for what parameters name: half of
// the cut prompt, its share of the prompt, or twice those tokens, for which the prompt is then cut less.
void shrink(PolicySpec& point, std::uint32_t layers, const PolicyTraits& traits, std::uint32_t whole,
            NominalTrace& trace) {
  const double budget = point.budget.value, most = most_of_prompt(point, traits, layers);
  if (point.budget.kind != Budget::Kind::kTokens || whole == trace.prompt || budget <= most * trace.prompt) return;
  const double cut = std::round(trace.prompt * std::max(most, budget / whole));
  const double least = std::min(budget, 2 * named_tokens(point));
  point.budget.value = std::max({1.0, cut, least});
  if (least > cut) trace.prompt = static_cast<std::uint32_t>(std::min<double>(whole, 2 * least));
}

// Where a policy leaves the first layers alone there is one layer more. Budgets that are not all alike are taken as
// tokens, for how unlike they are depends on those, and answers that stay whole beside them are cut as they are.
NominalPart part_of(const WorkloadRequest& request, std::size_t number, std::uint64_t seed) {
  NominalPart part;
  PolicySpec point = request.points[number];
  const PolicyTraits traits = policy_info(point.name).traits(point);
  NominalTrace& trace = part.trace;
  trace.seed = seed;
  trace.query_heads = std::min(request.model.group(), kMostNominalHeads);
  if (traits.dense_layers < request.model.layers) trace.layers = traits.dense_layers + 1;
  const bool by_depth = needs_each_layer(point, traits);
  const std::uint32_t replayed = by_depth ? copies_of_layer(request, traits, trace.query_heads) : trace.layers;
  trace.prompt = static_cast<std::uint32_t>(
      std::min<double>(request.prompt, longest_prompt(traits, by_depth, trace.query_heads, replayed)));
  Budget& budget = point.budget;
  if (by_depth && budget.kind == Budget::Kind::kFractionOfPrompt) {
    budget.value = budget.tokens(request.prompt, request.prompt);
    budget.kind = Budget::Kind::kTokens;
  }
  const double whole = budget.value;
  shrink(point, request.model.layers, traits, request.prompt, trace);
  const bool in_tokens = budget.kind == Budget::Kind::kTokens;
  const double cut = in_tokens ? budget.value / whole : static_cast<double>(trace.prompt) / request.prompt;
  const bool answers_stay = by_depth && traits.schedule == Schedule::kPrefillOnly;
  const double output = std::max(1.0, std::round((answers_stay ? cut : 1) * request.output));
  trace.output = static_cast<std::uint32_t>(std::min<double>(output, kMostNominalOutput));
  if (by_depth) part.windows = windows_of_copies(request.model, replayed, cut);
  part.points = {std::move(point)};
  part.numbers = {number};
  return part;
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

std::vector<NominalPart> nominal_parts(const WorkloadRequest& request, std::uint64_t seed) {
  std::vector<NominalPart> parts;
  for (std::size_t i = 0; i < request.points.size(); ++i) {
    NominalPart own = part_of(request, i, seed);
    const auto same = std::ranges::find_if(parts, [&own](const NominalPart& part) {
      return part.trace == own.trace && part.windows == own.windows;
    });
    if (same == parts.end()) {
      parts.push_back(std::move(own));
      continue;
    }
    same->points.push_back(std::move(own.points.front()));
    same->numbers.push_back(i);
  }
  return parts;
}

NominalRecording::NominalRecording(const NominalTrace& trace) : folder_(new_folder()) {
  try {
    remove_at_signals(folder_);
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
