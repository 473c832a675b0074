#include "sim/replay/resident_rows.hpp"

#include <algorithm>
#include <vector>

#include "sim/core/philox.hpp"
#include "sim/replay/exact_rows.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

constexpr std::uint32_t kTokens = 200;
constexpr std::uint32_t kHeads = 4;
constexpr std::uint32_t kGroup = 2;

float number(std::uint32_t i) { return 8 * uniform_open(philox4x32_10({{i, 0, 0, 0}}, 3).x[0]); }

// Rows of a layer of four query heads on two KV heads, made of given logits.
struct Rows {
  Rows() {
    shape.query_heads = kHeads;
    shape.kv_heads = kHeads / kGroup;
    shape.k_width = shape.v_width = 1;
    keys_values.tokens = kTokens;
    keys_values.k.resize(std::size_t{kTokens} * shape.kv_heads * sizeof(float));
    keys_values.v = keys_values.k;
    rows.start_layer(shape, DType::kF32, keys_values, 13);
  }
  void compute(std::uint32_t first, std::uint32_t count) {
    constexpr std::size_t kStride = std::size_t{kHeads} * kTokens;
    logits.resize(count * kStride);
    for (std::uint32_t i = 0; i < logits.size(); ++i) logits[i] = number(i + first);
    rows.compute_from_logits(first, count, logits, kStride, {.exponentials = true, .masses = true});
  }
  TraceLayer shape;
  LayerKeysValues keys_values;
  std::vector<float> logits;
  ThreadPool pool{1};
  ExactRows rows{pool};
};

void check_row(const Rows& rows, const ResidentRows& resident, std::uint32_t position, const HeldSlots& held) {
  for (std::uint32_t g = 0; g < kGroup; ++g) {
    const std::span<const float> row = resident.row(held.place, g);
    REQUIRE(row.size() == held.positions.size());
    for (std::size_t s = 0; s < row.size(); ++s) {
      INFO("position " << position << " head " << held.head << " slot " << s);
      REQUIRE(row[s] == rows.rows.exponentials(position, held.head * kGroup + g)[held.positions[s].value]);
    }
  }
}

}  // namespace

TEST_CASE("resident rows are the exponentials of what a head holds, whatever it admits, gives up and moves") {
  Rows rows;
  ResidentRows resident;
  std::vector<TokenPos> held;
  for (std::uint32_t t = 0; t < 100; t += 3) held.emplace_back(t);
  std::uint32_t position = 100;
  for (const std::uint32_t count : {13U, 8U, 1U, 5U, 13U}) {
    rows.compute(position, count);
    resident.start();
    for (std::uint32_t end = position + count; position < end; ++position) {
      SlotId admitted(position * 7 % static_cast<std::uint32_t>(held.size()));
      std::vector<SlotMove> moves;
      if (position % 5 == 0) {  // the number of slots grows
        admitted = SlotId(static_cast<std::uint32_t>(held.size()));
        held.emplace_back(position);
      } else if (position % 11 == 0) {  // many go at once, and others take their place
        const std::uint32_t gone = position % 2 == 0 ? 2 : 7;
        const auto left = static_cast<std::uint32_t>(held.size()) - gone;
        for (std::uint32_t i = 0; i < gone; ++i) {
          moves.push_back({SlotId(left + i), SlotId(2 + i)});
          held[2 + i] = held[left + i];
        }
        held.resize(left);
        admitted = SlotId(0);
      }
      held[admitted.value] = TokenPos(position);
      for (std::uint32_t head = 0; head < kHeads / kGroup; ++head) {
        const HeldSlots slots{head, head, kGroup, held, admitted, moves};
        resident.show(rows.rows.interleaved(), position, slots);
        check_row(rows, resident, position, slots);
      }
    }
  }
}

TEST_CASE("resident rows that were not shown at every row are gathered again") {
  Rows rows;
  ResidentRows resident;
  std::vector<TokenPos> held;
  for (std::uint32_t t = 0; t < 60; ++t) held.emplace_back(t);
  rows.compute(60, 8);
  resident.start();
  for (std::uint32_t position = 60; position < 68; ++position) {
    held[position % 7] = TokenPos(position);
    if (position == 62 || position == 63) continue;
    const HeldSlots slots{1, 0, kGroup, held, SlotId(position % 7), {}};
    resident.show(rows.rows.interleaved(), position, slots);
    check_row(rows, resident, position, slots);
  }
}
