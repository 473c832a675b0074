// How a LayerPolicy takes tokens in, and which slots they get.
#include <algorithm>

#include "sim/core/error.hpp"
#include "sim/policy/layer_policy.hpp"

namespace kvroof {
namespace {

// Turning a pair of elements takes four multiplications and two additions.
constexpr double kTurnFlops = 3;

}  // namespace

// The slot of the token that has just left the window of this query, if the head holds it. Queries come one by one, so
// there is at most one. Until something else is evicted, slots are a ring, and it need not be sought.
std::optional<SlotId> LayerPolicy::take_hidden(Head& head, TokenPos query) const {
  const std::uint32_t window = context_.window;
  if (window == 0 || query.value < window || query.value - window < head.visible_from) return std::nullopt;
  const TokenPos hidden(query.value - window);
  head.visible_from = hidden.value + 1;
  const std::uint32_t in_ring = hidden.value % window;
  if (in_ring < head.positions.size() && head.positions[in_ring] == hidden) return SlotId(in_ring);
  const auto found = std::find(head.positions.begin(), head.positions.end(), hidden);
  if (found == head.positions.end()) return std::nullopt;
  return SlotId(static_cast<std::uint32_t>(found - head.positions.begin()));
}

// Where tokens may move at every step, all keys are turned as they are read; after the prompt's only eviction its
// survivors are turned once, where there are gaps to close, and stand where they are to.
double LayerPolicy::keys_turned(const Head& head, TokenPos position) const {
  if (traits_.schedule == Schedule::kEveryStep) return static_cast<double>(head.positions.size());
  if (position.value != context_.prompt) return 0;
  const std::size_t held = head.positions.size();
  const bool has_gaps = std::ranges::min(head.positions).value + held != std::size_t{position.value} + 1;
  return has_gaps ? static_cast<double>(held - 1) : 0;
}

SlotId LayerPolicy::admit(HeadId head, TokenPos position) {
  Head& h = heads_[head.value];
  if (context_.window > 0) {
    if (const auto hidden = take_hidden(h, position)) h.hole = hidden;
  }
  SlotId slot(static_cast<std::uint32_t>(h.positions.size()));
  if (h.hole) {
    slot = *h.hole;
    h.hole.reset();
    h.positions[slot.value] = position;
  } else {
    h.positions.push_back(position);
  }
  policy_->admit(head, slot, position);
  h.counts.written += 1;
  h.counts.policy_flops.noise += traits_.noise_flops_per_token * context_.group;
  h.counts.attended += h.positions.size();
  if (relocates(position) && context_.rotation.rule != nullptr) {
    h.counts.policy_flops.scoring += kTurnFlops * context_.rotation.rule->dims * keys_turned(h, position);
  }
  return slot;
}

void LayerPolicy::admit_first(std::uint32_t count) {
  check(count <= context_.prompt, "tokens of the prompt");
  const std::uint32_t slots = context_.window > 0 ? std::min(context_.window, count) : count;
  for (std::uint32_t head = 0; head < heads_.size(); ++head) {
    Head& h = heads_[head];
    check(h.positions.empty(), "the first tokens come first");
    h.positions.resize(slots);
    for (std::uint32_t t = 0; t < count; ++t) {
      const SlotId slot(t % slots);
      h.positions[slot.value] = TokenPos(t);
      policy_->admit(HeadId(head), slot, TokenPos(t));
    }
    h.visible_from = count - slots;
    h.counts.written += count;
    h.counts.policy_flops.noise += traits_.noise_flops_per_token * context_.group * count;
    const std::uint64_t growing = slots, whole = count - slots;  // rows, and those that read as much as a row can
    h.counts.attended += growing * (growing + 1) / 2 + whole * slots;
  }
}

std::span<const TokenPos> LayerPolicy::positions(HeadId head) const {
  const Head& h = heads_[head.value];
  if (!h.hole) return h.positions;
  h.without_hole = h.positions;
  h.without_hole.erase(h.without_hole.begin() + h.hole->value);
  return h.without_hole;
}

}  // namespace kvroof
