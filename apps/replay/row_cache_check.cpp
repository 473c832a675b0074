#include "apps/replay/row_cache_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace kvroof {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20;
constexpr std::uint32_t kMostSteps = 64;

}  // namespace

std::string RowCacheCheck::text(const std::vector<PolicySpec>& specs) const {
  std::uint64_t tokens = 0, same = 0;
  std::size_t worst = 0;
  std::optional<double> recall;
  for (std::size_t p = 0; p < points.size(); ++p) {
    tokens += points[p].tokens;
    same += points[p].same;
    if (points[p].same_share() < points[worst].same_share()) worst = p;
    if (points[p].recall_difference) recall = std::max(recall.value_or(0), std::abs(*points[p].recall_difference));
  }
  const double share = tokens == 0 ? 1.0 : static_cast<double>(same) / static_cast<double>(tokens);
  return fmt::format(
      "rows of one byte a weight keep {:.3f} % of the tokens that exact rows keep ({} tokens at {} steps; least {:.3f} "
      "%, {}){}",
      100 * share, tokens, steps, 100 * points[worst].same_share(), specs[worst].text(),
      recall ? fmt::format("; mean recalls differ by up to {:.5f}", *recall) : std::string());
}

nlohmann::ordered_json row_cache_json(const RowCacheCheck& check, const std::vector<PolicySpec>& specs) {
  using Json = nlohmann::ordered_json;
  Json json = {{"steps", check.steps}, {"points", Json::array()}};
  for (std::size_t p = 0; p < specs.size(); ++p) {
    const RowCacheCheck::Point& point = check.points[p];
    json["points"].push_back({{"point", specs[p].text()},
                              {"tokens", point.tokens},
                              {"same_tokens", point.same},
                              {"same_share", point.same_share()},
                              {"sets", point.sets},
                              {"same_sets", point.same_sets},
                              {"recall_difference", nullptr}});
    if (point.recall_difference) json["points"].back()["recall_difference"] = *point.recall_difference;
  }
  return json;
}

bool uses_row_cache(const PolicySpec& spec) {
  const PolicyTraits t = policy_info(spec.name).traits(spec);
  return t.scope != Scope::kModel && (t.adds_up_rows || (t.rows == RowNeed::kNone && !t.selects));
}

bool needs_exact_rows(const PolicySpec& spec) {
  return policy_info(spec.name).traits(spec).scope != Scope::kModel && !uses_row_cache(spec);
}

RowCacheComparison::RowCacheComparison(const TraceManifest& manifest, const std::vector<PolicySpec>& points) {
  for (const PolicySpec& point : points) uses_rows_.push_back(uses_row_cache(point));
  check_.points.resize(points.size());
  std::uint64_t heads = 0;
  for (const TraceLayer& layer : manifest.layers) heads += layer.query_heads;
  std::uint64_t tokens = 1;  // that the sets of one step of all sequences have at most
  std::uint32_t last = 0;
  for (const TraceSequence& s : manifest.sequences) {
    tokens += points.size() * heads * s.tokens;
    last = std::max(last, s.tokens - std::min(s.tokens, s.prompt));
  }
  const auto most = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kMostBytes / (tokens * sizeof(std::uint32_t)), 1, kMostSteps));
  stride_ = last / most + 1;
  check_.steps = last / stride_ + 1;
}

void RowCacheComparison::add_exact(const KeptSet& set) {
  if (!uses_rows_[set.point]) return;
  lengths_.push_back(static_cast<std::uint32_t>(set.positions.size()));
  for (const TokenPos position : set.positions) tokens_.push_back(position.value);
}

void RowCacheComparison::compare(const KeptSet& set) {
  if (!uses_rows_[set.point]) return;
  check(next_set_ < lengths_.size(), "both replays have the same sets");
  const std::size_t length = lengths_[next_set_++];
  std::size_t exact = next_token_;
  next_token_ += length;
  std::uint64_t same = 0;
  for (const TokenPos position : set.positions) {
    while (exact < next_token_ && tokens_[exact] < position.value) ++exact;
    same += exact < next_token_ && tokens_[exact] == position.value ? 1 : 0;
  }
  RowCacheCheck::Point& point = check_.points[set.point];
  point.tokens += set.positions.size();
  point.same += same;
  ++point.sets;
  point.same_sets += same == set.positions.size() && same == length ? 1 : 0;
}

RowCacheCheck RowCacheComparison::finish(const std::vector<PointResult>& exact, const std::vector<PointResult>& coded) {
  check(next_set_ == lengths_.size(), "both replays have the same sets");
  for (std::size_t p = 0; p < coded.size(); ++p) {
    if (!uses_rows_[p] || !exact[p].quality || !coded[p].quality) continue;
    check_.points[p].recall_difference = coded[p].quality->recall_mean - exact[p].quality->recall_mean;
  }
  return check_;
}

}  // namespace kvroof
