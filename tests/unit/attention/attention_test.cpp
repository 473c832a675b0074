#include "sim/attention/attention.hpp"
#include "sim/attention/key_tile.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <hwy/targets.h>

#include "sim/attention/plain.hpp"
#include "sim/attention/portable_math.hpp"
#include "sim/attention/vector.hpp"
#include "sim/core/alibi.hpp"
#include "sim/core/philox.hpp"
#include "tests/catch.hpp"

using namespace kvroof;

namespace {

// Uniform numbers in (−1, 1) from the counter-based generator.
std::vector<float> numbers(std::size_t count, std::uint32_t stream) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = 2 * uniform_open(philox4x32_10({{static_cast<std::uint32_t>(i), stream, 0, 0}}, 7).x[0]) - 1;
  }
  return x;
}

// Rows of a type, with two elements between rows that belong to nobody.
struct Rows {
  std::vector<std::byte> memory;
  RowsView view;

  Rows(DType type, std::size_t count, std::size_t width, std::uint32_t stream) {
    const std::size_t stride = width + 2;
    memory.resize(count * stride * size_of(type));
    convert_from_float(type, numbers(count * stride, stream), memory.data());
    view = {memory.data(), type, stride, width, count};
  }
  [[nodiscard]] double at(std::size_t i, std::size_t j) const {
    float x = 0;
    convert_to_float(view.type, view.row(i) + j * size_of(view.type), {&x, 1});
    return static_cast<double>(x);
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Runs `body` once under each instruction set that this processor offers.
template <class Body>
void on_every_target(Body body) {
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    INFO("instruction set " << hwy::TargetName(target));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

}  // namespace

TEST_CASE("logits have the same bits on every instruction set, for every width, count and type of rows") {
  for (const DType type : kTypes) {
    for (const std::size_t width : {1, 3, 15, 16, 17, 31, 64, 80, 96, 128, 129}) {
      for (const std::size_t count : {0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 33}) {
        const Rows keys(type, count, width, 1);
        const std::vector<float> q = numbers(width, 2);
        std::vector<float> expected(count);
        plain::scaled_dots(q.data(), keys.view, 0.125F, expected.data());
        on_every_target([&] {
          INFO(name_of(type) << " width " << width << " count " << count);
          std::vector<float> logits(count, 99);
          vector::scaled_dots(q.data(), keys.view, 0.125F, logits.data());
          CHECK(same_bits(logits, expected));
        });
      }
    }
  }
}

TEST_CASE("logits of many queries over a tile of keys have the bits that each has alone, on every instruction set") {
  for (const DType type : kTypes) {
    for (const std::size_t width : {1, 5, 16, 17, 36, 64, 80, 128, 131}) {
      for (const std::size_t count : {1, 3, 16, 41, 64}) {
        const Rows keys(type, count, width, 1);
        for (const std::size_t queries : {1, 2, 3, 4, 7}) {
          std::vector<std::vector<float>> q;
          std::vector<const float*> pointers;
          for (std::uint32_t i = 0; i < queries; ++i) q.push_back(numbers(width, 2 + i));
          for (const auto& query : q) pointers.push_back(query.data());
          on_every_target([&] {
            INFO(name_of(type) << " width " << width << " keys " << count << " queries " << queries);
            KeyTile tile;
            tile.load(keys.view);
            std::vector<float> out(queries * KeyTile::kKeys, 99);
            compute_logits(pointers, tile, {.scale = 0.125F, .softcap = 3}, out);
            std::vector<float> expected(count);
            for (std::size_t i = 0; i < queries; ++i) {
              compute_logits(q[i], keys.view, {.scale = 0.125F, .softcap = 3}, expected);
              const std::vector<float> here(out.begin() + static_cast<std::ptrdiff_t>(i * KeyTile::kKeys),
                                            out.begin() + static_cast<std::ptrdiff_t>(i * KeyTile::kKeys + count));
              CHECK(same_bits(here, expected));
            }
          });
        }
      }
    }
  }
}

TEST_CASE("the parts of a softmax and weighted sums have the same bits on every instruction set") {
  for (std::size_t count = 1; count < 70; ++count) {
    std::vector<float> logits = numbers(count, 3);
    for (float& x : logits) x *= 50;
    std::vector<float> expected(count);
    const Range range = plain::range_of(logits.data(), count);
    const ExponentOrigin origin{0, portable::shifted_exponent(range.most)};
    const float total = plain::exponentials(logits.data(), count, origin, expected.data());
    std::vector<float> scaled(count);
    plain::scale(expected.data(), count, 0.3F, scaled.data());
    for (const DType type : kTypes) {
      for (const std::size_t width : {1, 5, 16, 36, 64, 128, 131}) {
        const Rows values(type, count, width, 4);
        std::vector<float> expected_out(width);
        plain::weighted_sum(scaled.data(), values.view, expected_out.data());
        on_every_target([&] {
          INFO(name_of(type) << " width " << width << " count " << count);
          std::vector<float> weights = logits;
          const Range here = vector::range_of(weights.data(), count);
          CHECK((here.least == range.least && here.most == range.most));
          std::vector<float> sums(count), plain_sums(count);
          const Range of_sums = vector::scaled_sums(logits.data(), expected.data(), count, 0.7F, sums.data());
          const Range of_plain = plain::scaled_sums(logits.data(), expected.data(), count, 0.7F, plain_sums.data());
          CHECK((of_sums.least == of_plain.least && of_sums.most == of_plain.most));
          CHECK(same_bits(sums, plain_sums));
          CHECK(vector::exponentials(weights.data(), count, origin, weights.data()) == total);
          CHECK(same_bits(weights, expected));
          CHECK(vector::sum(weights.data(), count) == total);
          CHECK(vector::sum(logits.data(), count) == plain::sum(logits.data(), count));
          vector::scale(weights.data(), count, 0.3F, weights.data());
          CHECK(same_bits(weights, scaled));
          std::vector<float> out(width, 99);
          vector::weighted_sum(weights.data(), values.view, out.data());
          CHECK(same_bits(out, expected_out));
        });
      }
    }
  }
}

TEST_CASE("rows are interleaved and gathered alike on every instruction set") {
  for (const std::size_t count : {1, 3, 4, 5, 16, 17, 64, 71}) {
    const std::vector<float> elements = numbers(kInterleavedRows * count, 9);
    std::array<const float*, kInterleavedRows> rows;
    for (std::size_t r = 0; r < kInterleavedRows; ++r) rows[r] = elements.data() + r * count;
    std::vector<TokenPos> index;
    for (std::size_t s = 0; s < count; ++s) index.emplace_back(static_cast<std::uint32_t>(s * 29 % count));
    on_every_target([&] {
      std::vector<float> side_by_side(elements.size(), 99);
      vector::interleave(rows, count, side_by_side.data(), kInterleavedRows);
      std::vector<float> apart(count * 11, 99);
      vector::interleave(rows, count, apart.data(), 11);
      for (std::size_t i = 0; i < apart.size(); ++i) {
        CHECK(apart[i] == (i % 11 < kInterleavedRows ? rows[i % 11][i / 11] : 99));
      }
      std::vector<float> gathered(elements.size() + kInterleavedRows, 99);
      vector::gather_interleaved(side_by_side.data(), index, gathered.data(), count + 1);
      for (std::size_t r = 0; r < kInterleavedRows; ++r) {
        for (std::size_t s = 0; s < count; ++s) CHECK(gathered[r * (count + 1) + s] == rows[r][index[s].value]);
        CHECK(gathered[r * (count + 1) + count] == 99);
      }
    });
  }
}

TEST_CASE("exponentials of successive rows side by side are those of each row, with and without a window, on every "
          "instruction set") {
  for (const std::uint32_t first : {0U, 3U, 20U, 75U}) {
    for (const std::uint32_t queries : {1U, 5U, 8U}) {
      for (const std::uint32_t window : {0U, 9U}) {
        std::vector<std::vector<float>> logits, expected;
        std::vector<float> expected_sinks;
        const AttentionSink sink = window > 0 ? AttentionSink(0.7F) : std::nullopt;
        LogitRows rows;
        rows.sink = sink;
        rows.first = first;
        rows.last = first + queries;
        for (std::uint32_t r = 0; r < queries; ++r) {
          const std::uint32_t tokens = first + r + 1;
          const std::uint32_t hidden = window > 0 && tokens > window ? tokens - window : 0;
          logits.push_back(numbers(tokens, 5 + r));
          std::fill_n(logits.back().begin(), hidden, -std::numeric_limits<float>::infinity());
          if (r == 1) logits.back().back() = 40000;  // a maximum to be subtracted
          expected.emplace_back(tokens, 0.0F);
          const std::span visible = std::span(logits.back()).subspan(hidden);
          const RowExponentials made = exponentials(visible, std::span(expected.back()).subspan(hidden), sink);
          expected_sinks.push_back(made.sink);
          rows.first_visible[r] = hidden;
        }
        for (std::uint32_t r = 0; r < kInterleavedRows; ++r) {
          const std::uint32_t row = std::min(r, queries - 1);
          rows.rows[r] = logits[row].data();
          rows.first_visible[r] = rows.first_visible[row];
        }
        on_every_target([&] {
          std::vector<float> out(std::size_t{rows.last} * kInterleavedRows);
          const auto made = interleaved_exponentials(rows, out.data());
          for (std::uint32_t r = 0; r < queries; ++r) {
            CHECK(made[r].shares == (r != 1));
            CHECK(made[r].sink == expected_sinks[r]);
            for (std::uint32_t token = 0; token <= first + r; ++token) {
              CHECK(std::bit_cast<std::uint32_t>(out[token * kInterleavedRows + r]) ==
                    std::bit_cast<std::uint32_t>(expected[r][token]));
            }
          }
        });
      }
    }
  }
}

TEST_CASE("half precision rows keep subnormal and signed values exactly on every instruction set") {
  std::vector<std::uint16_t> bits = {0x0001, 0x83ff, 0x0400, 0x7bff, 0x8000, 0x3c00, 0xbc00, 0x0200};
  bits.resize(16, 0x2e66);
  const RowsView row{reinterpret_cast<const std::byte*>(bits.data()), DType::kF16, 16, 16, 1};
  const std::vector<float> one(1, 1.0F);
  on_every_target([&] {
    std::vector<float> out(16);
    vector::weighted_sum(one.data(), row, out.data());
    for (std::size_t i = 0; i < 16; ++i) CHECK(out[i] == f16_to_float(bits[i]));
  });
}

TEST_CASE("a logit is the scaled dot product, soft-capped when the rule says so") {
  const Rows keys(DType::kBF16, 9, 80, 5);
  const std::vector<float> q = numbers(80, 6);
  std::vector<float> plain_logits(9);
  std::vector<float> capped(9);
  compute_logits(q, keys.view, {.scale = 0.5F}, plain_logits);
  compute_logits(q, keys.view, {.scale = 0.5F, .softcap = 2.0F}, capped);
  for (std::size_t i = 0; i < 9; ++i) {
    double dot = 0;
    for (std::size_t j = 0; j < 80; ++j) dot += static_cast<double>(q[j]) * keys.at(i, j);
    CHECK(static_cast<double>(plain_logits[i]) == Approx(0.5 * dot).margin(1e-5));
    CHECK(static_cast<double>(capped[i]) == Approx(2 * std::tanh(0.25 * dot)).margin(1e-5));
  }
}

TEST_CASE("softmax of ln 1, ln 2, ln 5 is 1/8, 2/8, 5/8") {
  const std::vector<float> logits = {std::log(1.0F), std::log(2.0F), std::log(5.0F)};
  std::vector<float> weights(3);
  softmax(logits, weights);
  CHECK(weights[0] == Approx(0.125).epsilon(1e-6));
  CHECK(weights[1] == Approx(0.25).epsilon(1e-6));
  CHECK(weights[2] == Approx(0.625).epsilon(1e-6));
}

TEST_CASE("softmax survives logits whose exponential would overflow, and underflow gives 0") {
  std::vector<float> x = {1000, 1000, -1000};
  softmax(x, x);
  CHECK(x[0] == Approx(0.5).epsilon(1e-6));
  CHECK(x[1] == x[0]);
  CHECK(x[2] == 0.0F);
}

TEST_CASE("equal logits have equal shares, rounded once") {
  for (const std::size_t count : {1, 2, 3, 7, 10, 33}) {
    std::vector<float> x(count, 0.3F);
    softmax(x, x);
    for (const float weight : x) CHECK(weight == 1 / static_cast<float>(count));
  }
}

TEST_CASE("the softmax of a part of a row can be made of the row's exponentials, to the bit") {
  std::vector<float> row = numbers(500, 11);
  for (float& x : row) x *= 30;
  row[3] = 34;  // far above what the parts hold
  std::vector<float> of_row(row.size());
  REQUIRE(exponentials(row, of_row).shares);
  for (const std::size_t count : {1, 2, 31, 32, 33, 100, 200}) {
    std::vector<TokenPos> slots;
    for (std::size_t s = 0; s < count; ++s) slots.emplace_back(static_cast<std::uint32_t>(4 + s * 37 % 496));
    std::vector<float> logits(count);
    std::vector<float> weights(count);
    gather(row, slots, logits);
    gather(of_row, slots, weights);
    softmax(logits, logits);
    weights_of_exponentials(weights, weights);
    CHECK(same_bits(logits, weights));
  }
}

TEST_CASE("a row whose parts may underflow or whose logits are huge does not share its exponentials") {
  std::vector<float> out(3);
  CHECK(exponentials(std::vector<float>{0, 34, 69}, out).shares);
  CHECK_FALSE(exponentials(std::vector<float>{0, 34, 70}, out).shares);
  CHECK(exponentials(std::vector<float>{16384, 16380, 16350}, out).shares);
  CHECK_FALSE(exponentials(std::vector<float>{16385, 16380, 16350}, out).shares);
  CHECK_FALSE(exponentials(std::vector<float>{-16385, -16380, -16350}, out).shares);
  // A sink is one of them.
  CHECK(exponentials(std::vector<float>{0, 34, 60}, out, -9.0F).shares);
  CHECK_FALSE(exponentials(std::vector<float>{0, 34, 60}, out, -10.0F).shares);
  CHECK_FALSE(exponentials(std::vector<float>{0, 34, 60}, out, 70.0F).shares);
}

TEST_CASE("softmax of huge logits is that of their distances from the largest") {
  std::vector<float> huge = {1000000, 1000001, 999999, -1e30F};
  std::vector<float> small = {0, 1, -1, -100};
  softmax(huge, huge);
  softmax(small, small);
  for (std::size_t i = 0; i < 4; ++i) CHECK(huge[i] == Approx(small[i]).epsilon(1e-6).margin(1e-30));
}

TEST_CASE("noise is added before the temperature divides") {
  const std::vector<float> logits = {0.0F, 1.0F, 2.0F};
  const std::vector<float> noise = {0.5F, -0.25F, 3.0F};
  std::vector<float> weights(3);
  softmax_with_noise(logits, noise, 2.0F, weights);
  const double e[] = {std::exp(0.25), std::exp(0.375), std::exp(2.5)};
  for (std::size_t i = 0; i < 3; ++i) CHECK(weights[i] == Approx(e[i] / (e[0] + e[1] + e[2])).epsilon(1e-6));
}

TEST_CASE("without noise and at temperature 1 Keyformer's score function is softmax to the bit") {
  std::vector<float> logits = numbers(77, 8);
  std::vector<float> a(77);
  std::vector<float> b(77);
  softmax(logits, a);
  softmax_with_noise(logits, {}, 1.0F, b);
  CHECK(same_bits(a, b));
}

TEST_CASE("the portable exponential is within 2e-7 of e^x from -87 to 0, and 0 below") {
  double worst = 0;
  for (std::uint32_t bits = 0x80000000U; bits <= std::bit_cast<std::uint32_t>(-87.0F); bits += 1019) {
    const auto x = std::bit_cast<float>(bits);
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(portable::exp_of_negative(x)) - exact) / exact);
  }
  CHECK(worst < 2e-7);
  CHECK(portable::exp_of_negative(0.0F) == 1.0F);
  CHECK(portable::exp_of_negative(-87.0F) > 0.0F);
  CHECK(portable::exp_of_negative(std::nextafter(-87.0F, -100.0F)) == 0.0F);
  CHECK(portable::exp_of_negative(-std::numeric_limits<float>::infinity()) == 0.0F);
}

TEST_CASE("a weighted sum adds the rows in order") {
  // 1e8 + 1 − 1e8 is 0 in float in this order, and 1 in any that cancels first.
  const std::vector<float> values = {1e8F, 1.0F, -1e8F};
  const RowsView rows{reinterpret_cast<const std::byte*>(values.data()), DType::kF32, 1, 1, 3};
  std::vector<float> out(1);
  weighted_sum(std::vector<float>(3, 1.0F), rows, out);
  CHECK(out[0] == 0.0F);
}

TEST_CASE("the ALiBi bias is the slope times the distance back from the query") {
  const std::vector<TokenPos> positions = {TokenPos(2), TokenPos(7), TokenPos(9)};
  std::vector<float> logits = {1, 1, 1};
  add_alibi(positions, TokenPos(9), {0.25F}, logits);
  CHECK(logits == std::vector<float>{-0.75F, 0.5F, 1.0F});
}

TEST_CASE("ALiBi slopes are 2^-1 … 2^-8 for eight heads, and interleaved for a number that is no power of two") {
  const std::vector<float> eight = alibi_slopes(8);
  for (std::size_t i = 0; i < 8; ++i) CHECK(eight[i] == std::exp2(-static_cast<float>(i + 1)));
  // Six heads take every second slope of eight, then the first ones between.
  CHECK(alibi_slopes(6) == std::vector<float>{eight[1], eight[3], eight[5], eight[7], eight[0], eight[2]});
}

TEST_CASE("gather picks the resident positions out of a row, however many there are") {
  const std::vector<float> row = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20};
  for (std::uint32_t count = 0; count <= 11; ++count) {
    std::vector<TokenPos> positions;
    std::vector<float> expected;
    for (std::uint32_t i = 0; i < count; ++i) {
      positions.emplace_back(7 * i % 11);
      expected.push_back(10 + static_cast<float>(7 * i % 11));
    }
    std::vector<float> out(count);
    gather(row, positions, out);
    CHECK(out == expected);
  }
}
