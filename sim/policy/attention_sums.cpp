#include "sim/policy/attention_sums.hpp"

#include <algorithm>

namespace kvroof {

void AttentionSums::observe(HeadId head, const AttentionRows& rows) {
  Head& h = heads_[head.value];
  const std::span<float> scores = h.scores.column(0, rows.slots());
  if (forgetting_ != 1) {
    for (float& score : scores) score *= forgetting_;
  }
  accumulate(reduction_, rows.weights, rows.group, scores);
  h.walked += 2 * scores.size_bytes();
}

void AttentionSums::evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) {
  Head& h = heads_[head.value];
  const std::span<float> scores = h.scores.column(0, static_cast<std::uint32_t>(request.positions.size()));
  h.choice.choose(scores, outside_recent(request, recent_), request.excess, victims);
  h.walked += scores.size_bytes();
}

double AttentionSums::score_gap(HeadId head, SlotId a, SlotId b) const {
  const Head& h = heads_[head.value];
  return h.choice.gap(h.scores.column(0, std::max(a.value, b.value) + 1), a, b);
}

void AttentionSums::move(HeadId head, std::span<const SlotMove> moves) {
  Head& h = heads_[head.value];
  h.scores.move(moves);
  h.walked += moves.size() * 2 * h.scores.bytes_per_slot();
}

PolicyTraits attention_sums_traits(const PolicySpec& spec, TokensOrShare default_recent) {
  (void)tokens_or_share(spec, "recent", default_recent);
  (void)group_reduction(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.reads_logits = false;
  t.unit = group_unit(spec);
  read_schedule(spec, t);
  read_layers(spec, t);
  read_page(spec, t);
  t.state_bytes = t.state_read = t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

}  // namespace kvroof
