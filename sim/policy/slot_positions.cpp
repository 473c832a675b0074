#include "sim/policy/slot_positions.hpp"

#include <cmath>
#include <vector>

namespace kvroof {
namespace {

// Memory of one thread.
struct Scratch {
  std::vector<SlotId> by_age;
  std::vector<float> turned;
};
thread_local Scratch scratch;

// q as a query that stands `by` positions earlier.
void turn_back(const LayerRotation& rotation, std::uint32_t by, std::span<float> q) {
  const std::span<const float> frequencies = rotation.frequencies();
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const auto angle = static_cast<double>(static_cast<float>(by) * frequencies[i]);
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    const auto [one, other] = rotation.elements(i);
    const auto a = static_cast<double>(q[one]);
    const auto b = static_cast<double>(q[other]);
    q[one] = static_cast<float>(a * cosine + b * sine);
    q[other] = static_cast<float>(b * cosine - a * sine);
  }
}

}  // namespace

void relocate_logits(const SlotRow& row, std::span<float> logits) {
  slots_by_age(row.positions, scratch.by_age);
  std::uint32_t turned_by = 0;
  const auto slots = static_cast<std::uint32_t>(row.positions.size());
  for (std::uint32_t place = 0; place < slots; ++place) {
    const SlotId slot = scratch.by_age[place];
    const TokenPos position = row.positions[slot.value];
    const std::uint32_t distance = slots - 1 - place;
    const std::uint32_t shrinks = row.query.value - position.value - distance;
    if (shrinks == 0) return;  // younger tokens have no gap either
    if (shrinks != turned_by) {
      scratch.turned.assign(row.q.begin(), row.q.end());
      turn_back(row.rotation, shrinks, scratch.turned);
      turned_by = shrinks;
    }
    const std::size_t key = row.by_position ? position.value : slot.value;
    const std::span<float> logit = logits.subspan(slot.value, 1);
    compute_logits(scratch.turned, row.keys.slice(key, 1), row.rule, logit);
    logit[0] += row.alibi.of(TokenPos(place), TokenPos(slots - 1));
  }
}

}  // namespace kvroof
