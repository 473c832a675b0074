#include <cmath>
#include <random>
#include <vector>

#include "sim/core/kv_quantizer.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

std::vector<float> normal_row(std::size_t width, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> row(width);
  for (float& x : row) x = normal(random);
  return row;
}

float largest_of(const std::vector<float>& row) {
  float largest = 0;
  for (const float x : row) largest = std::max(largest, std::fabs(x));
  return largest;
}

}  // namespace

TEST_CASE("stored bytes of an element are those of the papers") {
  // 128 times bits / 8 + 4 / group: 0.5625 (FlexGen, groups of 64), 0.375 and 0.625 (KIVI, groups of 32).
  CHECK(KvType(KvType::kInt4G64).row(128).total() == 72);
  CHECK(KvType(KvType::kKivi2).row(128).total() == 48);
  CHECK(KvType(KvType::kKivi4).row(128).total() == 80);
  // A float32 scale a row, as the CUDA back end keeps it.
  CHECK(KvType(KvType::kInt8).row(128) == KvBytes{128, 4, 0});
  CHECK(KvType(KvType::kInt4).row(128) == KvBytes{64, 4, 0});
  CHECK(KvType(DType::kF32).row(128) == KvBytes{512, 0, 0});
  // A row that ends within a group has a scale for the rest; a row of nothing, none.
  CHECK(KvType(KvType::kInt4G64).row(80) == KvBytes{40, 8, 0});
  CHECK(KvType(KvType::kInt8).row(0).total() == 0);
}

TEST_CASE("a cache of KIVI's stores the formula's bytes at lengths 1, 127, 128, 129 and 1000") {
  for (const std::uint32_t n : {1U, 127U, 128U, 129U, 1000U}) {
    const std::uint32_t keys = n / 128 * 128, values = n > 128 ? n - 128 : 0;
    const AgedRows rows{n - keys, n - values, keys, values};
    for (const auto& [kind, an_element] : {std::pair(KvType::kKivi2, 0.375), std::pair(KvType::kKivi4, 0.625)}) {
      const double formula = 64 * (an_element * (keys + values) + 2.0 * (n - keys + n - values));
      CHECK(static_cast<double>(aged_bytes(kind, 64, 64, rows).total()) == formula);
    }
    CHECK(kivi_packed_keys(n) == keys);
    CHECK(kivi_packed_values(n) == values);
  }
}

TEST_CASE("names of cache types are read back, in the spellings of float types too") {
  for (const auto kind :
       {KvType::kF32, KvType::kBF16, KvType::kInt8, KvType::kInt4, KvType::kInt4G64, KvType::kKivi2}) {
    CHECK(parse_kv_type(name_of(kind)) == KvType(kind));
  }
  CHECK(parse_kv_type("float16") == KvType(KvType::kF16));
  CHECK_FALSE(parse_kv_type("int5"));
  CHECK_FALSE(parse_kv_type("i64"));
}

TEST_CASE("a round trip errs by at most half a step of the row's or the group's scale") {
  const std::vector<float> exact = normal_row(128, 1);
  for (const auto& [kind, most] : {std::pair(KvType::kInt8, 127.0F), std::pair(KvType::kInt4, 7.0F)}) {
    std::vector<float> row = exact;
    round_trip_row(kind, row);
    const float scale = largest_of(exact) / most;
    CHECK(row != exact);
    for (std::size_t i = 0; i < row.size(); ++i) REQUIRE(std::fabs(row[i] - exact[i]) <= 0.5001F * scale);
  }
  std::vector<float> row = exact;
  round_trip_row(KvType::kInt4G64, row);
  for (std::size_t first = 0; first < row.size(); first += 64) {
    const auto [least, most] = std::minmax_element(exact.begin() + static_cast<std::ptrdiff_t>(first),
                                                   exact.begin() + static_cast<std::ptrdiff_t>(first + 64));
    for (std::size_t i = first; i < first + 64; ++i) {
      REQUIRE(std::fabs(row[i] - exact[i]) <= 0.53F * (*most - *least) / 15);
    }
  }
}

TEST_CASE("zeros and equal elements come back as they are from every type") {
  for (const auto kind : {KvType::kInt8, KvType::kInt4, KvType::kInt4G64, KvType::kKivi2}) {
    for (const float x : {0.0F, 0.75F}) {
      std::vector<float> row(96, x);
      round_trip_row(kind, row);
      round_trip_aged_value(KvType::kKivi4, row);
      round_trip_aged_keys(KvType::kKivi2, row, 48);
      // 0.75 = 127 · (0.75 / 127) up to the rounding of that scale.
      for (const float back : row) CHECK(back == Approx(x).margin(1e-6));
    }
  }
}

TEST_CASE("a group is rounded half to even between its minimum and its maximum") {
  const std::vector<float> x = {0, 0.5F, 1.5F, 2.5F, 3};  // scale 1 at 2 bits
  std::vector<std::uint8_t> levels(x.size());
  const GroupScale group = quantise_group(2, DType::kF32, x, levels);
  CHECK(group.scale == 1);
  CHECK(group.minimum == 0);
  CHECK(levels == std::vector<std::uint8_t>{0, 0, 2, 2, 3});
}

TEST_CASE("keys are grouped along tokens and values along channels") {
  // Channel 0 spans 0 … 3 over the tokens, channel 1 is constant: along tokens nothing is lost at 2 bits.
  std::vector<float> keys = {0, 100, 1, 100, 2, 100, 3, 100};
  const std::vector<float> exact = keys;
  round_trip_aged_keys(KvType::kKivi2, keys, 2);
  CHECK(keys == exact);
  std::vector<float> value = {0, 1, 2, 100};  // along channels it is: steps of 100 / 3
  round_trip_aged_value(KvType::kKivi2, value);
  CHECK(value[1] == 0);
}
