#include "sim/cost/engine_profile.hpp"

#include <algorithm>

#include "sim/core/version.hpp"

namespace kvroof {

const EngineProfile& EngineProfile::of(std::string_view version, std::string_view architecture,
                                       double memory_gib) const {
  const EngineProfile* here = nullptr;  // of those that begin below the board's memory the last
  for (const EngineProfile& there : elsewhere) {
    const bool listed = std::find(there.on.begin(), there.on.end(), architecture) != there.on.end();
    if (listed && memory_gib >= there.from_gib && (here == nullptr || there.from_gib > here->from_gib)) here = &there;
  }
  if (here != nullptr) return here->of(version, architecture, memory_gib);
  const EngineProfile* found = this;
  for (const EngineProfile* newer = this; !newer->earlier.empty(); newer = &newer->earlier.front()) {
    const EngineProfile& older = newer->earlier.front();
    const auto is_before = [&](const std::string& first) { return earlier_version(version, first); };
    const bool stated = std::any_of(older.before.begin(), older.before.end(), is_before);
    if (stated) found = &older;
  }
  return *found;
}

bool EngineProfile::runs_on_vendor(std::string_view vendor) const {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  const auto is_it = [&](const std::string& one) { return std::ranges::equal(one, vendor, {}, lower, lower); };
  return vendor.empty() || runs_on.empty() || std::ranges::any_of(runs_on, is_it);
}

std::uint64_t EngineProfile::padded(std::uint64_t batch, std::uint64_t tokens, std::uint32_t stages) const {
  if (!replays(batch, tokens, stages)) return batch * tokens;
  const std::uint64_t each = graphs_of_tokens ? 1 : tokens, passed = batch * tokens;
  const auto next = std::lower_bound(graph_sizes.begin(), graph_sizes.end(), passed / each);
  return next != graph_sizes.end() ? *next * each : passed;
}

}  // namespace kvroof
