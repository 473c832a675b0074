#include "kernels/cpu/kv_cache.hpp"

#include <array>

#include "tests/catch.hpp"

using namespace kvroof;

namespace {

const KvLayout kLayout{DType::kF32, 2, 3, 2};

void store(KvCache& cache, std::uint32_t head, std::uint32_t slot, float value) {
  const std::array<float, 3> k = {value, value, value};
  const std::array<float, 2> v = {-value, -value};
  CHECK(cache.store(HeadId(head), SlotId(slot), k, v) == kLayout.row_bytes());
}

float key(const KvCache& cache, std::uint32_t head, std::uint32_t slot) {
  return *reinterpret_cast<const float*>(cache.keys(HeadId(head), cache.capacity(HeadId(head))).row(slot));
}

float value(const KvCache& cache, std::uint32_t head, std::uint32_t slot) {
  return *reinterpret_cast<const float*>(cache.values(HeadId(head), cache.capacity(HeadId(head))).row(slot));
}

}  // namespace

TEST_CASE("a cache owns capacity rows of k and v for each storage head") {
  CHECK(KvCache(kLayout, 10).allocated_bytes() == 2 * 10 * (3 + 2) * 4);
  CHECK(KvCache().allocated_bytes() == 0);
}

TEST_CASE("a cache can own more rows of one head than of another") {
  KvCache cache(kLayout, std::vector<std::uint32_t>{3, 1});
  CHECK(cache.allocated_bytes() == (3 + 1) * (3 + 2) * 4);
  store(cache, 0, 2, 5);
  store(cache, 1, 0, 7);
  CHECK(key(cache, 0, 2) == 5);
  CHECK(value(cache, 1, 0) == -7);
  CHECK_THROWS_AS(cache.keys(HeadId(1), 2), std::logic_error);
}

TEST_CASE("rows of different heads and slots do not touch each other") {
  KvCache cache(kLayout, 4);
  for (std::uint32_t h = 0; h < 2; ++h) {
    for (std::uint32_t s = 0; s < 4; ++s) store(cache, h, s, static_cast<float>(10 * h + s));
  }
  for (std::uint32_t h = 0; h < 2; ++h) {
    for (std::uint32_t s = 0; s < 4; ++s) {
      CHECK(key(cache, h, s) == static_cast<float>(10 * h + s));
      CHECK(value(cache, h, s) == -static_cast<float>(10 * h + s));
    }
  }
}

TEST_CASE("rows are rounded to the type of the cache") {
  KvCache cache({DType::kBF16, 1, 1, 1}, 1);
  const float x = 1.00390625F;  // half way between two bf16 numbers
  CHECK(cache.store(HeadId(0), SlotId(0), {&x, 1}, {&x, 1}) == 4);
  float stored = 0;
  convert_to_float(DType::kBF16, cache.keys(HeadId(0), 1).data, {&stored, 1});
  CHECK(stored == 1.0F);
}

TEST_CASE("moved rows count as read and written") {
  KvCache cache(kLayout, 4);
  for (std::uint32_t s = 0; s < 4; ++s) store(cache, 1, s, static_cast<float>(s));
  const std::array<SlotMove, 2> moves = {SlotMove{SlotId(3), SlotId(0)}, SlotMove{SlotId(2), SlotId(1)}};
  CHECK(cache.copy(HeadId(1), cache, moves) == 2 * 2 * kLayout.row_bytes());
  CHECK(key(cache, 1, 0) == 3);
  CHECK(value(cache, 1, 1) == -2);
}

TEST_CASE("a cache that grows keeps its rows") {
  KvCache cache(kLayout, 2);
  store(cache, 0, 1, 5);
  store(cache, 1, 0, 7);
  cache.grow(HeadId(0), 5);
  CHECK(cache.capacity(HeadId(0)) == 5);
  CHECK(cache.capacity(HeadId(1)) == 2);
  CHECK(key(cache, 0, 1) == 5);
  CHECK(value(cache, 1, 0) == -7);
}

TEST_CASE("a slot beyond the capacity breaks an invariant") {
  KvCache cache(kLayout, 2);
  const std::array<float, 3> k{};
  const std::array<float, 2> v{};
  CHECK_THROWS_AS(cache.store(HeadId(0), SlotId(2), k, v), std::logic_error);
  CHECK_THROWS_AS(cache.keys(HeadId(0), 3), std::logic_error);
}

TEST_CASE("a latent cache keeps one row a token: v is read from inside k and counts no bytes of its own") {
  const KvLayout latent{DType::kBF16, 2, 6, 4, true};
  CHECK(latent.row_bytes() == 6 * 2);
  KvCache cache(latent, 3);
  CHECK(cache.allocated_bytes() == 2 * 3 * 6 * 2);
  const auto store_row = [&](std::uint32_t head, std::uint32_t slot, float first) {
    const std::array<float, 6> k = {first, first + 1, first + 2, first + 3, -1, -2};
    CHECK(cache.store(HeadId(head), SlotId(slot), k, std::span(k).first(4)) == latent.row_bytes());
  };
  const auto row_of = [&](const RowsView& rows, std::uint32_t slot) {
    std::vector<float> row(rows.width);
    convert_to_float(rows.type, rows.row(slot), row);
    return row;
  };
  for (std::uint32_t slot = 0; slot < 3; ++slot) {
    store_row(0, slot, 100);
    store_row(1, slot, static_cast<float>(10 * slot));
  }
  CHECK(row_of(cache.keys(HeadId(1), 3), 2) == std::vector<float>{20, 21, 22, 23, -1, -2});
  CHECK(row_of(cache.values(HeadId(1), 3), 2) == std::vector<float>{20, 21, 22, 23});
  const std::array<SlotMove, 1> moves = {SlotMove{SlotId(2), SlotId(0)}};
  CHECK(cache.copy(HeadId(1), cache, moves) == 2 * latent.row_bytes());
  CHECK(row_of(cache.values(HeadId(1), 3), 0) == std::vector<float>{20, 21, 22, 23});
  for (const std::uint32_t head : {0, 1}) cache.grow(HeadId(head), 5);
  CHECK(row_of(cache.values(HeadId(1), 5), 1) == std::vector<float>{10, 11, 12, 13});
  CHECK(row_of(cache.keys(HeadId(0), 5), 2) == std::vector<float>{100, 101, 102, 103, -1, -2});
}
