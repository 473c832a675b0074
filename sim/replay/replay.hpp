// Replay: one pass over a trace says what each of many policies would have kept, read and moved, and at what quality.
//
// For each sequence and layer, k and v are read once and queries are streamed; the logits of each query over all tokens
// before it are computed once and serve all points. Each point gathers those of its slots and steps a LayerPolicy
// exactly as the reference engine does, so that its decisions are those of the engine, bit for bit. Memory: k and v of
// one layer of one sequence, a block of rows (a fifth of that, or 4 MiB), and the points' state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "sim/core/ids.hpp"
#include "sim/core/residency.hpp"
#include "sim/core/thread_pool.hpp"
#include "sim/policy/policy.hpp"
#include "sim/policy/spec.hpp"
#include "sim/replay/point_layer.hpp"
#include "sim/replay/quality.hpp"
#include "sim/replay/recorded.hpp"
#include "sim/replay/residency_log.hpp"
#include "sim/replay/row_cache.hpp"
#include "traces/reader.hpp"

namespace kvroof {

// What a point holds after a step.
struct KeptSet {
  std::uint32_t point = 0;     // index into the points
  std::uint32_t sequence = 0;  // its id in the trace
  StepId step{};
  LayerId layer{};
  std::uint32_t head = 0;               // storage head; for policies that select, query head
  bool query_head = false;              // storage is by query head, or the policy selects
  std::span<const TokenPos> positions;  // ascending; for policies that select, what the step's query read
};

struct QualityValue {
  std::uint32_t point = 0;
  std::uint32_t sequence = 0;
  StepId step{};
  LayerId layer{};
  std::uint32_t query_head = 0;
  HeadQuality quality;
};

// Sees details as the replay goes, on the calling thread, in an order that does not depend on the number of threads: by
// sequence, layer, step, point, head.
class ReplayObserver {
 public:
  virtual ~ReplayObserver() = default;
  // Whether kept() shall be called for this step of a sequence of `last` decoded tokens.
  virtual bool wants_kept(StepId /*step*/, StepId /*last*/) { return false; }
  virtual void kept(const KeptSet& /*set*/) {}
  virtual void quality(const QualityValue& /*value*/) {}
  // After each layer of each sequence.
  virtual void progress(std::uint64_t /*done*/, std::uint64_t /*total*/) {}
};

struct ReplayOptions {
  std::uint64_t seed = 0;
  MeasureOptions measure;
  ReplayObserver* observer = nullptr;  // not owned
  // Attention rows of one byte a weight in place of those of q and k, not owned; those of points with one set for the
  // model stay exact.
  RowCache* row_cache = nullptr;
  // W_O by layer, [hidden, query heads · v width], for policies that need it; what it returns outlives the replay.
  std::function<RowsView(LayerId)> output_projection{};
  // Of the tokens of a sequence, by position, for policies that need them.
  std::function<std::vector<TokenKind>(const TraceSequence&)> token_kinds{};
  // Windows of layers that all have the rows of the trace's one layer; empty: the trace's layers are replayed. Not for
  // policies with one set for the model or that look ahead.
  std::vector<std::uint32_t> windows_of_copies{};
};

struct PointResult {
  PolicySpec spec;
  PolicyTraits traits;
  std::vector<ResidencyLog> residency;       // one a sequence whose whole prompt is recorded, in the manifest's order
  std::optional<Quality> quality;            // nothing when no token was decoded, or recall was not asked for
  std::optional<Reproduction> reproduction;  // when the trace was recorded under this policy, budget, cache and seed
  std::optional<Budget> replayed = {};       // the budget of the replay, where spec has that of longer prompts
};

// The trace's manifest with the sequences whose prompt was recorded to its end. Throws Error (exit code 4) without any.
TraceManifest with_whole_prompts(const TraceReader& trace);

// Results in the order of `points`. Throws Error for a damaged segment (exit code 4) and for layers of unlike heads.
std::vector<PointResult> replay(const TraceReader& trace, std::span<const PolicySpec> points,
                                const ReplayOptions& options, ThreadPool& pool);

}  // namespace kvroof
