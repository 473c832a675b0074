// Residency: what a policy kept, read and moved, per step and layer; independent of device, batch and data type.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/core/fields.hpp"
#include "sim/core/kv_type.hpp"

namespace kvroof {

inline constexpr std::uint64_t kPageRows = 16;

// Rows of whole pages that hold so many rows of one head.
constexpr std::uint64_t in_pages(std::uint64_t rows) { return (rows + kPageRows - 1) / kPageRows * kPageRows; }

// Arithmetic of a policy: what it makes of the attention it observes and of k, v and q; draws; one comparison for each
// slot that competes when victims are chosen (a partial sort needs two to three).
struct PolicyFlops {
  double scoring = 0;
  double noise = 0;
  double selection = 0;

  [[nodiscard]] double total() const { return scoring + noise + selection; }
  PolicyFlops& operator+=(const PolicyFlops& b) { return *this = *this + b; }
  friend PolicyFlops operator+(const PolicyFlops& a, const PolicyFlops& b) {
    return {a.scoring + b.scoring, a.noise + b.noise, a.selection + b.selection};
  }
  friend PolicyFlops operator*(double x, const PolicyFlops& a) {
    return {x * a.scoring, x * a.noise, x * a.selection};
  }
  friend bool operator==(const PolicyFlops&, const PolicyFlops&) = default;
};

// Sums over the storage heads of one layer in one step, in rows (a row is one token's k and v of one storage head).
struct LayerCounts {
  std::uint64_t attended = 0;   // rows read by attention: k + 1 a head in the steady state; n (n + 1) / 2 in the prompt
  std::uint64_t indexed = 0;    // rows among which an index chose those, see TokenIndex; 0 where there is none
  std::uint64_t attended_other = 0;  // of these, in layers that have other heads than most (ModelShape::other)
  std::uint64_t written = 0;    // rows written: 1 a head; n in the prompt
  std::uint64_t moved = 0;      // rows copied by compaction (each is read once and written once)
  std::uint64_t resident = 0;   // rows held after eviction
  std::uint64_t allocated = 0;  // rows the cache must have room for: the largest count present at once, so far
  // Likewise where memory comes in pages of kPageRows rows of one head: what each head holds, rounded up.
  std::uint64_t allocated_paged = 0;
  std::uint64_t state_read = 0;     // bytes of policy state read (scores, counters)
  std::uint64_t state_written = 0;  // bytes of policy state written
  // Elements in the cache's type that the policy read or wrote to score tokens: of k, v and q, and of page metadata.
  std::uint64_t scored = 0;
  std::uint64_t page_metadata = 0;  // elements in the cache's type that are held beside k and v: bounds of pages
  // Of the rows above, those that have a key in an index where only some of a model's do (CompressedRows).
  std::uint64_t keyed_written = 0, keyed_moved = 0, keyed_resident = 0;
  PolicyFlops policy_flops;
  // Where they were asked for: the rows above by how a cache with a residual window keeps them (KvType::by_age).
  AgedRows attended_aged, resident_aged;
  // What such a cache converted: rows read or written in float16, out of the window or of the prompt's buffer, and
  // rows that were written quantised.
  AgedRows converted;
  friend bool operator==(const LayerCounts&, const LayerCounts&) = default;
};

// All of them but the arithmetic.
inline constexpr std::array kCountFields = {
    &LayerCounts::attended,  &LayerCounts::attended_other, &LayerCounts::indexed,    &LayerCounts::written,
    &LayerCounts::moved,     &LayerCounts::resident,       &LayerCounts::allocated,  &LayerCounts::allocated_paged,
    &LayerCounts::state_read, &LayerCounts::state_written, &LayerCounts::scored,     &LayerCounts::page_metadata,
    &LayerCounts::keyed_written, &LayerCounts::keyed_moved, &LayerCounts::keyed_resident};
inline constexpr std::array kAgedCounts = {&LayerCounts::attended_aged, &LayerCounts::resident_aged,
                                           &LayerCounts::converted};
static_assert(sizeof(LayerCounts) == kCountFields.size() * sizeof(std::uint64_t) + sizeof(PolicyFlops) +
                                         kAgedCounts.size() * sizeof(AgedRows),
              "every count is in a table");
// Shows f each count of one, those by age among them, or the same count of several.
template <class F, class... Counts>
void for_each_count(const F& f, Counts&... counts) {
  for_each_field<kCountFields>(f, counts...);
  for_each_field<kAgedCounts>([&](auto&... aged) { for_each_count_of(f, aged...); }, counts...);
}

inline LayerCounts& operator+=(LayerCounts& sum, const LayerCounts& counts) {
  for_each_count([](std::uint64_t& a, std::uint64_t b) { a += b; }, sum, counts);
  sum.policy_flops += counts.policy_flops;
  return sum;
}
inline LayerCounts operator+(LayerCounts a, const LayerCounts& b) { return a += b; }
// Counts wrap below 0, which adding undoes.
inline LayerCounts operator-(LayerCounts a, const LayerCounts& b) {
  for_each_count([](std::uint64_t& x, std::uint64_t y) { x -= y; }, a, b);
  a.policy_flops += -1.0 * b.policy_flops;
  return a;
}
inline LayerCounts operator*(std::uint64_t times, LayerCounts counts) {
  for_each_count([times](std::uint64_t& a) { a *= times; }, counts);
  counts.policy_flops = static_cast<double>(times) * counts.policy_flops;
  return counts;
}
// Of a sum over so many, what one has: rounded down, or to nearest.
inline LayerCounts operator/(LayerCounts sum, std::uint64_t count) {
  for_each_count([count](std::uint64_t& a) { a /= count; }, sum);
  sum.policy_flops = 1 / static_cast<double>(count) * sum.policy_flops;
  return sum;
}
inline LayerCounts nearest_mean(LayerCounts sum, std::uint64_t count) {
  for_each_count([count](std::uint64_t& a) { a = nearest_mean(a, count); }, sum);
  sum.policy_flops = 1 / static_cast<double>(count) * sum.policy_flops;
  return sum;
}
inline LayerCounts sum_counts(std::span<const LayerCounts> cells) {
  LayerCounts sum;
  for (const LayerCounts& cell : cells) sum += cell;
  return sum;
}

// One sequence under one policy.
struct Residency {
  std::string policy;               // resolved specification
  std::uint32_t sequence = 0;
  std::uint32_t prompt = 0;         // prompt tokens
  std::uint32_t steps = 0;          // decoded tokens that passed through the model
  std::uint32_t layers = 0;
  std::uint32_t storage_heads = 0;  // KV heads, or query heads for policies that store so
  std::uint32_t kv_heads = 0;       // of the model
  std::vector<std::uint32_t> layer_windows;  // tokens that each layer sees; 0: all. Empty: all 0
  std::vector<std::uint32_t> layer_rows;     // of one token in each layer; empty: storage_heads in all
  std::uint32_t index_tokens = 0;  // that a query reads at most where an index chooses them; 0: there is none
  std::uint32_t dense_layers = 0;  // the first so many are left alone by a policy that works on the others
  std::uint64_t state_bytes_per_row = 0;  // resident policy state for one row
  bool needs_probabilities = false;       // prefill loses fused attention
  bool observes_steps = false;            // the policy looks at the attention of decoded tokens
  std::uint32_t repeats = 0;  // above 0: before it evicts, the model repeats the prompt, so many tokens at a time
  std::vector<LayerCounts> cells;   // [step 0 … steps][layer]; step 0 is the prompt

  // Rows that a layer has room for at most, of `rows` that there would be without a window.
  [[nodiscard]] std::uint64_t within_window(std::uint32_t layer, std::uint64_t rows) const {
    const std::uint64_t window = layer_windows.empty() ? 0 : layer_windows[layer];
    return window == 0 ? rows : std::min(rows, window * rows_of_token(layer));
  }
  [[nodiscard]] std::uint32_t rows_of_token(std::uint32_t layer) const {
    return layer_rows.empty() ? storage_heads : layer_rows[layer];
  }
  // Of `rows` of a layer those that one query reads where an index chooses them.
  [[nodiscard]] std::uint64_t chosen(std::uint64_t rows) const {
    return index_tokens == 0 ? rows : std::min(rows, std::uint64_t{index_tokens} * storage_heads);
  }
  // Whether an index chooses in a layer: no window, which is read whole, has one.
  [[nodiscard]] bool chooses(std::uint32_t layer) const {
    return index_tokens > 0 && (layer_windows.empty() || layer_windows[layer] == 0);
  }
  [[nodiscard]] const LayerCounts& at(std::uint32_t step, std::uint32_t layer) const {
    return cells[static_cast<std::size_t>(step) * layers + layer];
  }
  [[nodiscard]] LayerCounts& at(std::uint32_t step, std::uint32_t layer) {
    return cells[static_cast<std::size_t>(step) * layers + layer];
  }
};

}  // namespace kvroof
