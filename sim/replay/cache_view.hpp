// CacheView: the recorded k and v of one layer as a quantised cache gives them back; shared by all points of that type.
//
// A cache with a residual window (KvType::by_age) gives a row back in float16 or as it was quantised, by its age at the
// query. Its groups of k are quantised with all of their tokens; an engine that has evicted some of them before has a
// smaller range to quantise, so that what is measured here errs by a little more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sim/core/kv_type.hpp"
#include "sim/policy/spec.hpp"
#include "sim/replay/exact_rows.hpp"

namespace kvroof {

// Where the queries that attention is shown stand: `tokens` are cached before them.
struct AgedRowsOf {
  std::span<const TokenPos> positions;
  std::uint64_t tokens = 0;
};
// What a residual window makes of these tokens.
AgedRows aged_rows(const AgedRowsOf& rows);
// What it converts when the token that makes them `tokens` is cached.
AgedRows aged_by_last(const AgedRowsOf& rows);

class CacheView {
 public:
  CacheView(KvType type, ThreadPool& pool) : type_(type), pool_(pool), written_(pool), aged_(pool) {}

  [[nodiscard]] KvType type() const { return type_; }
  // As ExactRows has them; `layer` stays alive.
  void start_layer(const TraceLayer& layer, DType type, const LayerKeysValues& keys_values, std::uint32_t max_rows);
  void compute(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q);
  // Index of the first element of v of the layer that is beyond what the cache's type holds.
  [[nodiscard]] std::optional<std::size_t> first_unheld_value() const;

  // Of a query of the block over these tokens. `aged`: it meets what the tokens before it left, as in decoding; a
  // prompt that is attended to as a whole is not.
  void logits(std::uint32_t position, std::uint32_t query_head, std::span<const TokenPos> attended, bool aged,
              std::span<float> logits) const;
  // out = Σ weights[s] · v of attended[s].
  void output(std::uint32_t position, std::uint32_t query_head, std::span<const TokenPos> attended, bool aged,
              std::span<const float> weights, std::span<float> out) const;

 private:
  void age_layer(const TraceLayer& layer, std::span<float> k, std::span<float> v);
  [[nodiscard]] LayerKeysValues stored(std::uint32_t tokens, std::span<const float> k, std::span<const float> v) const;

  KvType type_;
  ThreadPool& pool_;
  DType trace_type_ = DType::kF32;
  LayerKeysValues written_rows_, aged_rows_;
  ExactRows written_, aged_;  // over the rows as they were written, and as they are once quantised by age
  std::vector<std::byte> q_;
};

// The views that the points of a replay need: one for each type of quantised cache.
class CacheViews {
 public:
  explicit CacheViews(ThreadPool& pool) : pool_(pool) {}
  // Another point, before any layer.
  void add(const PolicySpec& spec);
  // Null where the point's cache is not quantised.
  [[nodiscard]] const CacheView* of(const PolicySpec& spec) const;
  void start_layer(const TraceLayer& layer, DType type, const LayerKeysValues& keys_values, std::uint32_t max_rows);
  void compute(std::uint32_t first, std::uint32_t count, std::span<const std::byte> q);
  [[nodiscard]] const std::vector<std::unique_ptr<CacheView>>& all() const { return views_; }

 private:
  ThreadPool& pool_;
  std::vector<std::unique_ptr<CacheView>> views_;
};

}  // namespace kvroof
