// Replays policies with one set for the model: all layers of a recording side by side, as one layer with all heads.
//
// What such a policy decides after a step depends on that step in every layer, so that its layers cannot be replayed
// one after the other: k, v and q of all of them are in memory at once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "sim/replay/replay.hpp"

namespace kvroof {

// Where a replay takes the tensors of a layer.
struct LayerSource {
  std::function<LayerKeysValues(std::uint32_t sequence, LayerId layer)> keys_values;
  // Of all tokens, as TraceReader::for_each_query_block visits them.
  std::function<void(std::uint32_t sequence, LayerId layer,
                     const std::function<void(std::uint32_t, std::uint32_t, std::span<const std::byte>)>& visit)>
      query_blocks;
};

// Runs one part of the points: `manifest` tells of the layers that the source has.
using RunPoints = std::function<std::vector<PointResult>(TraceManifest manifest, LayerSource source,
                                                         std::span<const PolicySpec> points,
                                                         const ReplayOptions& options)>;

// The results of all points, in their order: those with a set for each layer in one part, those with one set for the
// model in another. Throws Error (usage) where layers differ in what such a set depends on.
std::vector<PointResult> replay_parts(const TraceReader& trace, std::span<const PolicySpec> points,
                                      const ReplayOptions& options, const RunPoints& run);

}  // namespace kvroof
