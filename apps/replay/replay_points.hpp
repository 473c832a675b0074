// The points of a replay: policy × budget × model × device × batch, each priced from a summary of its residency.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/replay/replay_request.hpp"
#include "sim/cost/cost.hpp"
#include "sim/replay/bounds.hpp"
#include "sim/replay/replay.hpp"
#include "sim/traffic/accounting.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

struct ReplayPoint {
  const PointResult* result = nullptr;
  std::string model;        // of --as; empty: as recorded
  std::string device;       // empty: none
  std::uint64_t batch = 1;  // of requests; 0: not even one fits
  bool batch_is_max = false;
  Accounting accounting;                       // of the batch
  KvType kv = DType::kF32;
  std::optional<Prediction> prediction;        // with a device, when the batch fits
  std::string interval_from;                   // which measured rows its interval is from
  std::optional<std::uint64_t> largest_batch;  // with a device
  Estimate largest_batch_interval;             // likewise
  std::string limited_by;                      // with a device
  std::optional<BoundRecalls> bounds;          // random and oracle, where its recall lies between
  bool measured = true;                        // false: the recording lost nothing, where the projection would

  // What was measured of this point; null: nothing.
  [[nodiscard]] const Quality* quality() const { return measured && result->quality ? &*result->quality : nullptr; }
  [[nodiscard]] std::optional<double> position() const {
    return bounds ? std::optional(bounds->position(result->quality->recall_mean)) : std::nullopt;
  }
};

// What a user is told of a trace without a model.
inline constexpr std::string_view kAttentionAlone =
    "the trace holds imported tensors and names no model: bytes and time cover attention alone";
// The shape of the recorded model; of imported tensors, one with attention alone.
ModelShape shape_of(const TraceManifest& manifest);

// The type whose bytes the cache of a point takes: its own, else that of the recorded run, where its policy has such a
// cache.
KvType cache_of(const PolicySpec& spec, const TraceManifest& manifest);

// The sequences that decoded tokens; all of a recording in which none did.
std::vector<std::reference_wrapper<const ResidencyLog>> decoding(std::span<const ResidencyLog> sequences);

// Tokens that a head of each layer holds after a step, mean over decode steps and sequences; after the prompt where
// nothing was decoded.
std::vector<double> kept_by_layer(std::span<const ResidencyLog> sequences);

// The mean of the sequences of one point, made layer by layer so that no residency is ever held as a whole.
ResidencySummary summarise(std::span<const ResidencyLog> sequences);

// The same on another model's shape and with other lengths, where given; sim/traffic/summary.hpp says how.
ResidencySummary summarise_as(const PointResult& result, const ModelShape& from, const ModelShape& to,
                              std::optional<std::uint32_t> prompt, std::optional<std::uint32_t> output);
// Likewise the counts of each decode step, summed over layers: `output` of them for each sequence that decoded.
std::vector<LayerCounts> step_counts_as(const PointResult& result, const ModelShape& from, const ModelShape& to,
                                        std::uint32_t prompt, std::uint32_t output);

// Rows in the order: model, policy and budget, device, batch. `all`: the results and the bounds replayed beside them.
std::vector<ReplayPoint> price_points(const ReplayRequest& request, const TraceManifest& manifest,
                                      std::span<const PointResult> results, std::span<const PointResult> all);

}  // namespace kvroof
