// The one accounting of all policies: what a batch holds, reads, writes, moves and computes in a mean decode step, and
// what its prompts cost beside that.
#pragma once

#include <cstdint>

#include "sim/traffic/summary.hpp"
#include "sim/traffic/traffic.hpp"

namespace kvroof {

// Of a batch; a request that is decoded by b beams is b sequences, each with a cache of its own, its prompt included.
struct Accounting {
  double kept_tokens = 0;             // in a storage head, mean over decode steps
  std::uint64_t kv_resident = 0;      // bytes of k and v held after a decode step, mean
  std::uint64_t kv_allocated = 0;     // bytes that decoding must have room for, at its largest
  std::uint64_t kv_allocated_scales = 0;  // part of it: scales and minima of a quantised cache
  std::uint64_t kv_allocated_paged = 0;  // likewise in whole pages of kPageRows rows of one head
  std::uint64_t kv_read = 0;          // bytes of a mean decode step, as are the following
  std::uint64_t kv_read_scales = 0, kv_read_residual = 0;  // parts of it
  std::uint64_t kv_written = 0;
  std::uint64_t kv_moved = 0;         // rows copied by compaction, read and written
  std::uint64_t policy_state = 0;     // bytes of scores and counters beside the allocated rows, and of bounds of pages
  std::uint64_t page_metadata = 0;    // part of it: bounds of pages
  std::uint64_t state_read = 0;
  std::uint64_t state_written = 0;
  std::uint64_t scored = 0;           // bytes of k, v and q that the policy itself reads, and of bounds of pages
  double attention_flops = 0;
  PolicyFlops policy_flops;

  // Prompts. A policy that looks at the attention of all their rows has no fused attention there: q · k is computed a
  // second time from the saved sums, or the probabilities are written out.
  bool fused_prompt = true;
  double second_pass_flops = 0;            // 0 where attention stays fused
  // Of one layer, f32, if an engine writes them out instead: 4 · heads · n² of n prompt tokens, mean of the sequences.
  // 0 likewise.
  std::uint64_t probability_bytes = 0;
  std::uint64_t prompt_kv_moved = 0;       // survivors copied out of the prompt buffer, read and written
  PolicyFlops prompt_policy_flops;
};

// `sequences` = batch · beams, ≥ 1; `tokens`: of each in a decode step.
Accounting account(const ModelShape& shape, TrafficTypes types, const ResidencySummary& summary,
                   std::uint64_t sequences, StepTokens tokens = {});

}  // namespace kvroof
