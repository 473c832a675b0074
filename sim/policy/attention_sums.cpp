#include "sim/policy/attention_sums.hpp"

#include <algorithm>

namespace kvroof {

void AttentionSums::observe(HeadId head, const AttentionRows& rows) {
  Head& h = heads_[head.value];
  h.scores.add({rows.scaled_weights(), rows.group, reduction_, forgetting_}, rows.slots());
  h.walked += 2 * rows.slots() * sizeof(float);
}

void AttentionSums::evict(HeadId head, const EvictRequest& request, std::vector<SlotId>& victims) {
  Head& h = heads_[head.value];
  h.choice.choose(h.scores, outside_recent(request, recent_), request.excess, victims);
  h.walked += request.positions.size() * sizeof(float);
}

double AttentionSums::score_gap(HeadId head, SlotId a, SlotId b) const {
  const Head& h = heads_[head.value];
  return h.choice.gap(h.scores, a, b);
}

void AttentionSums::move(HeadId head, std::span<const SlotMove> moves) {
  Head& h = heads_[head.value];
  h.scores.move(moves);
  h.walked += moves.size() * 2 * sizeof(float);
}

PolicyTraits attention_sums_traits(const PolicySpec& spec, TokensOrShare default_recent) {
  (void)tokens_or_share(spec, "recent", default_recent);
  (void)group_reduction(spec);
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.needs_weights = true;
  t.scales_weights = true;
  t.reads_logits = false;
  t.adds_up_rows = true;
  t.unit = group_unit(spec);
  read_schedule(spec, t);
  read_layers(spec, t);
  read_page(spec, t);
  t.state_bytes = t.state_read = t.state_written = t.evict_read = sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

}  // namespace kvroof
