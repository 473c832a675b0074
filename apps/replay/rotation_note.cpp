#include "apps/replay/rotation_note.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/core/suggest.hpp"
#include "sim/policy/policy.hpp"

namespace kvroof {

std::string rotation_note(const TraceManifest& manifest, std::span<const PolicySpec> policies) {
  const auto unturned = [](const TraceLayer& l) { return l.rotary.style == "none" && l.alibi_slopes.empty(); };
  if (manifest.source == "engine" || !std::ranges::all_of(manifest.layers, unturned)) return {};
  std::vector<std::string> points;
  for (const PolicySpec& spec : policies) {
    const PolicyTraits traits = policy_info(spec.name).traits(spec);
    if (traits.undoes_rotation || traits.slot_positions()) points.push_back(spec.text());
  }
  if (points.empty()) return {};
  return fmt::format(
      "the trace tells of no rotary embedding, which {} would undo: right for a model that has none, else wrong "
      "(import qkv --rotary tells)",
      join(points, ", "));
}

}  // namespace kvroof
