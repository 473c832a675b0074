#include "sim/cost/draft_residency.hpp"

#include <algorithm>

#include "sim/core/units.hpp"
#include "sim/cost/held_rows.hpp"

namespace kvroof {
namespace {

using u64 = std::uint64_t;

// Of causal attention over so many tokens of a prompt. Where an index chooses, layers are alike, of latent attention.
LayerCounts prompt_counts(const ModelShape& s, std::uint32_t prompt) {
  LayerCounts counts;
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
    const u64 rows = s.rows_of_token(layer) * prefill_rows_read(prompt, 1, s.window(layer));
    counts.attended += rows;
    if (s.is_other(layer)) counts.attended_other += rows;
  }
  counts.written = rows_of_token(s) * prompt;
  if (s.index) {
    counts.indexed = counts.attended;
    counts.attended = std::min(counts.attended, s.layers * prefill_rows_read(prompt, 1, s.index.tokens));
  }
  return counts;
}

// Of a mean decode step of a sequence of so many tokens; layers may read rows of others.
LayerCounts decode_counts(const ModelShape& s, double tokens) {
  LayerCounts counts;
  double seen = 0;
  for (std::uint32_t layer = 0; layer < s.layers; ++layer) {
    seen += rows_seen(s, layer, tokens);
    if (s.is_other(layer)) counts.attended_other += nearest(rows_seen(s, layer, tokens));
  }
  counts.attended = nearest(seen);
  counts.resident = nearest(rows_held(s, tokens));
  counts.written = rows_of_token(s);
  if (s.index) {
    counts.indexed = counts.attended;
    counts.attended = std::min(counts.attended, u64{s.layers} * s.index.tokens);
  }
  return counts;
}

}  // namespace

ResidencySummary draft_residency(const ModelShape& draft, const ResidencySummary& target) {
  ResidencySummary r;
  r.prompt = target.prompt;
  r.steps = target.steps;
  r.layers = draft.layers;
  r.storage_heads = draft.kv_heads;
  r.decode = decode_counts(draft, target.mean_context());
  r.cached = target.cached;
  r.prefill = prompt_counts(draft, r.prompt);
  if (r.cached > 0) r.cached_prefill = prompt_counts(draft, r.cached);
  return r;
}

}  // namespace kvroof
