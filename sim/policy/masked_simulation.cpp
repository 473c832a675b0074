#include "sim/policy/masked_simulation.hpp"

#include <algorithm>

namespace kvroof {

PolicyTraits masked_traits() {
  PolicyTraits t;
  t.rows = RowNeed::kAll;
  t.selects = true;
  t.query_head_sums = sizeof(float);
  t.flops_per_slot = 1;
  return t;
}

void MaskedSimulation::admit(HeadId head, SlotId slot, TokenPos) {
  Head& h = heads_[head.value];
  h.sums.admit(slot);
  h.visible.admit(slot);
  for (std::uint32_t g = 0; g < context_.group; ++g) h.visible.at(g, slot) = 1;
}

void MaskedSimulation::select(HeadId head, std::uint32_t g, const AttentionRows& rows, std::vector<SlotId>& read) {
  const auto& visible = heads_[head.value].visible;
  for (std::uint32_t s = 0; s < rows.slots(); ++s) {
    if (visible.at(g, SlotId(s)) != 0) read.emplace_back(s);
  }
}

void MaskedSimulation::observe(HeadId head, const AttentionRows& rows) {
  for (std::uint32_t g = 0; g < rows.group; ++g) {
    add_row(head, g, rows);
    if (rows.query.value + 1 >= context_.prompt) choose(heads_[head.value], g, rows);
  }
}

void MaskedSimulation::add_row(HeadId head, std::uint32_t g, const AttentionRows& rows) {
  Head& h = heads_[head.value];
  h.slots.clear();
  select(head, g, rows, h.slots);
  const std::size_t count = h.slots.size();
  h.positions.clear();
  h.logits.resize(count);
  h.weights.resize(count);
  const std::span<const float> logits = rows.logits_of(g);
  for (std::size_t i = 0; i < count; ++i) {
    h.positions.push_back(rows.positions[h.slots[i].value]);
    h.logits[i] = logits[h.slots[i].value];
  }
  weigh(head, g, rows, h.positions, h.logits, h.weights);
  for (std::size_t i = 0; i < count; ++i) h.sums.at(g, h.slots[i]) += h.weights[i];
  h.walked += 2 * sizeof(float) * rows.slots();
}

// The mask for the query after `rows.query`.
void MaskedSimulation::choose(Head& head, std::uint32_t g, const AttentionRows& rows) {
  const std::uint32_t tokens = rows.query.value + 1;
  const auto [heavy_tokens, recent] = sizes(tokens);
  if (tokens <= heavy_tokens + recent) return;
  const std::span<const TokenPos> positions = rows.positions;
  const std::span<float> sums = head.sums.column(g, rows.slots());
  std::vector<SlotId>& slots = head.slots;
  slots.clear();
  for (std::uint32_t s = 0; s < rows.slots(); ++s) {
    if (positions[s].value + recent < tokens) slots.emplace_back(s);
  }
  const auto heavy_end = slots.begin() + std::min<std::ptrdiff_t>(heavy_tokens, std::ssize(slots));
  std::nth_element(slots.begin(), heavy_end, slots.end(), [&](SlotId a, SlotId b) {
    const float x = sums[a.value];
    const float y = sums[b.value];
    return x != y ? x > y : positions[a.value] > positions[b.value];
  });
  for (auto dropped = heavy_end; dropped != slots.end(); ++dropped) {
    head.visible.at(g, *dropped) = 0;
    sums[dropped->value] = 0;
  }
  if (returns()) {
    for (auto heavy = slots.begin(); heavy != heavy_end; ++heavy) head.visible.at(g, *heavy) = 1;
  }
  for (std::uint32_t s = 0; s < rows.slots(); ++s) {
    if (positions[s].value + recent != tokens) continue;
    head.visible.at(g, SlotId(s)) = 0;
    if (!returns()) sums[s] = 0;
  }
}

void MaskedSimulation::evict(HeadId, const EvictRequest&, std::vector<SlotId>&) {
  check(false, "a masked simulation is never asked to evict");
}

void MaskedSimulation::move(HeadId head, std::span<const SlotMove> moves) {
  heads_[head.value].sums.move(moves);
  heads_[head.value].visible.move(moves);
}

}  // namespace kvroof
