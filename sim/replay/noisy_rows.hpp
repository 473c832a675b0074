// NoisyRows: exponentials of (logits + noise) / temperature of a block of decode rows, as Keyformer looks at them;
// shared by all points that draw alike, whatever their budgets. They are scores of tokens: attention sinks have no part
// in them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/core/thread_pool.hpp"
#include "sim/policy/noise.hpp"
#include "sim/policy/policy.hpp"
#include "sim/replay/exact_rows.hpp"
#include "sim/replay/interleaved_rows.hpp"

namespace kvroof {

class NoisyRows {
 public:
  NoisyRows(const NoisyScore& score, ThreadPool& pool);

  [[nodiscard]] const NoisyScore& score() const { return score_; }
  // The layer whose rows follow, as its policies know it, in a sequence of `tokens` tokens.
  void start_layer(const PolicyContext& context, std::uint32_t query_heads, std::uint32_t tokens,
                   std::uint32_t max_rows);
  // The rows that `rows` has the logits of, all of them decoded.
  void compute(const ExactRows& rows);
  [[nodiscard]] const InterleavedRows& interleaved() const { return interleaved_; }

 private:
  void compute_head(const ExactRows& rows, std::uint32_t head, std::uint32_t first, std::uint32_t last);
  // The draws of one query for the tokens up to its own.
  const float* draw_for(std::uint32_t head, std::uint32_t position, float* out) const;

  NoisyScore score_;
  ThreadPool& pool_;
  NoiseSource draws_;
  PolicyContext context_;
  std::uint32_t heads_ = 0, tokens_ = 0;
  std::vector<TokenPos> positions_;  // 0, 1, 2, …
  std::vector<float> noise_;         // [query_heads, tokens], with one draw a token; without noise 0
  InterleavedRows interleaved_;
};

// The kinds of noisy rows that several points of a replay look at. A few: each takes as much memory as the rows'
// exponentials do.
class NoisyKinds {
 public:
  static constexpr std::size_t kMost = 4;

  explicit NoisyKinds(ThreadPool& pool) : pool_(pool) {}
  // Another point, before any layer.
  void add(const PolicyTraits& traits);
  void start_layer(const PolicyContext& context, const TraceLayer& layer, std::uint32_t tokens, std::uint32_t max_rows);
  void compute(const ExactRows& rows);
  // What such a point looks at; null where it makes its rows itself.
  [[nodiscard]] const NoisyRows* of(const PolicyTraits& traits) const;

 private:
  ThreadPool& pool_;
  std::vector<NoisyScore> once_;  // kinds that one point has
  std::vector<std::unique_ptr<NoisyRows>> shared_;
};

}  // namespace kvroof
