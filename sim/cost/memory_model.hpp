// What a batch needs in memory, and the largest that fits.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/core/units.hpp"
#include "sim/cost/estimate.hpp"
#include "sim/cost/placement.hpp"
#include "sim/traffic/summary.hpp"

namespace kvroof {

// Memory of a batch on one device (of several, on each), at its largest.
struct MemoryLedger {
  Bytes weights;
  Bytes kv_allocated;  // rows that decoding must have room for
  // Parts of kv_allocated where the cache is quantised: scales and minima; a residual window in float16.
  Bytes kv_scales, kv_residual;
  Bytes policy_state;  // scores and counters of those rows, and bounds of their pages
  Bytes states;        // of layers without a cache, one for each token that a step verifies
  Bytes activations;   // the larger of a decode step of the batch and the prefill of one sequence
  // The whole prompt cache of one sequence, or of all whose prompts are computed as one: of one layer when each is
  // compacted at once, else of all; and the probability matrices of an engine that does not fuse attention.
  Bytes prefill_transient;
  Bytes beam_copies;  // of the cache, while beams are put into another order
  Bytes draft_weights, draft_cache;  // of what drafts tokens; its cache is whole, whatever the policy keeps
  Bytes reserve;   // context, graphs, allocator slack
  Bytes capacity;  // usable memory of the device

  [[nodiscard]] Bytes total() const {
    return weights + kv_allocated + policy_state + states + activations + prefill_transient + beam_copies +
           draft_weights + draft_cache + reserve;
  }
  [[nodiscard]] bool fits() const { return total() <= capacity; }
  // Bytes in all, with the interval within which published peaks lie.
  [[nodiscard]] Estimate needed() const;
};

// Of a model where an engine has placed it, and of what drafts for it. Bytes are those of one device.
class MemoryModel {
 public:
  // Both outlive this.
  MemoryModel(const Placement& placed, const MemoryModel* draft) : placed_(placed), draft_(draft) {}

  [[nodiscard]] MemoryLedger ledger(const ResidencySummary& residency, std::uint64_t batch) const;
  // The largest batch whose ledger fits and that the engine takes; 0 when not even one sequence fits. Where `scale` is
  // given, as if every sum of bytes were so many times larger.
  [[nodiscard]] std::uint64_t largest_batch(const ResidencySummary& residency, double scale = 1) const;
  // What drafts holds of a sequence of so many tokens.
  [[nodiscard]] double draft_cache_bytes(double tokens) const { return draft_ ? draft_->whole_cache_bytes(tokens) : 0; }
  // The cache of a prompt of so many tokens, whole but for what windows hide; with that of what drafts.
  [[nodiscard]] double prompt_bytes(std::uint64_t tokens) const;
  // Likewise the states of one sequence in layers without a cache, also of what drafts, and what makes compressed rows.
  [[nodiscard]] double held_states() const;
  // As many rows of a sequence, in all of its layers, as the pages hold that `rows` take where they share pages with
  // states; elsewhere `rows` itself.
  [[nodiscard]] std::uint64_t rows_in_state_pages(const ResidencySummary& residency, std::uint64_t rows) const;

 private:
  // Where an engine keeps states and rows in pages of one size.
  struct StatePages {
    std::uint64_t tokens = 0;  // whose rows in one layer are a page
    double bytes = 0;          // of a page, on one device
    std::uint64_t states = 0;  // pages that the states of one sequence take, those that fill a group of layers included
  };
  [[nodiscard]] std::optional<StatePages> state_pages() const;
  [[nodiscard]] double allocated_states() const;  // of one sequence, in whole pages
  [[nodiscard]] double held_compressors() const;  // what makes compressed rows, which no step has several of
  [[nodiscard]] double whole_cache_bytes(double tokens) const;  // of a sequence, under full attention
  // Of one sequence, under an engine that may keep what a layer's window no longer shows.
  [[nodiscard]] KvBytes allocated(const ResidencySummary& residency) const;
  [[nodiscard]] KvBytes allocated_for_tokens(const ResidencySummary& residency) const;
  // What one device has of so many rows of a sequence; `hidden`: with those that windows no longer show.
  [[nodiscard]] double kv_share_of(std::uint32_t storage_heads, double rows, bool hidden) const {
    return placed_.kv_share_of(storage_heads, hidden ? placed_.others_of_token() : placed_.others_of(rows));
  }
  // Likewise of the layer that has most on it, in rows of the layer that has most in all.
  [[nodiscard]] double layer_share(std::uint32_t storage_heads) const;
  void add_cache(MemoryLedger& ledger, const ResidencySummary& residency, double sequences) const;
  [[nodiscard]] Bytes activations(const ResidencySummary& residency, double sequences) const;
  [[nodiscard]] Bytes prefill_transient(const ResidencySummary& residency, double sequences) const;

  const Placement& placed_;
  const MemoryModel* draft_;  // of what drafts tokens; null: it holds nothing
};

}  // namespace kvroof
