#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

TEST_CASE("embed gives the rows of the table, exactly, and counts only those") {
  for (const DType type : kTypes) {
    const Weight table = random_weight(type, 50, 37, 20);
    const std::vector<std::int64_t> ids = {49, 0, 7, 7};
    on_every_target([&] {
      std::vector<float> out = poisoned(4 * 37);
      const auto ops = make_fast_ops(2);
      ops->embed(table, ids, 1, out);
      for (std::size_t t = 0; t < 4; ++t) {
        for (std::size_t c = 0; c < 37; ++c) {
          CHECK(static_cast<double>(out[t * 37 + c]) == at(table.view(), static_cast<std::size_t>(ids[t]), c));
        }
      }
      CHECK(ops->counters()[Cause::kWeights] == 4 * 37 * size_of(type));
      CHECK(ops->counters()[Cause::kActivations] == 4 * 37 * 4);
    });
  }
}

TEST_CASE("an RMS norm equals its formula in double precision for every width and instruction set") {
  for (const DType type : kTypes) {
    for (const std::size_t width : {1, 3, 16, 31, 64, 100, 257, 4099}) {
      const Norm norm{random_weight(type, 1, width, 21), {}};
      const std::vector<float> x = numbers(5 * width, 22);
      std::vector<double> expected(x.size());
      for (std::size_t t = 0; t < 5; ++t) {
        double squares = 0;
        for (std::size_t i = 0; i < width; ++i) squares += std::pow(static_cast<double>(x[t * width + i]), 2);
        const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
        for (std::size_t i = 0; i < width; ++i) {
          expected[t * width + i] = static_cast<double>(x[t * width + i]) * factor * at(norm.scale.view(), 0, i);
        }
      }
      on_every_target([&] {
        INFO(name_of(type) << " width " << width);
        std::vector<float> out = poisoned(x.size());
        const auto ops = make_fast_ops(2);
        ops->norm(x, norm, {NormKind::kRms, 1e-5F}, out);
        CHECK(deviation(out, expected) <= 2e-6);
        CHECK(ops->counters()[Cause::kWeights] == width * size_of(type));
        CHECK(ops->counters()[Cause::kActivations] == 2 * 5 * width * 4);
      });
    }
  }
}

TEST_CASE("rotate turns each pair by position · theta^(-2i/dims), in both layouts, and leaves the rest of the head") {
  const std::vector<TokenPos> positions = {TokenPos(0), TokenPos(5), TokenPos(1999)};
  for (const RotaryStyle style : {RotaryStyle::kHalfSplit, RotaryStyle::kAdjacentPairs}) {
    for (const std::uint32_t dims : {2U, 8U, 38U, 64U}) {
      const std::uint32_t head_dim = 64;
      const std::uint32_t heads = 3;
      const std::vector<float> x = numbers(positions.size() * heads * head_dim, 23);
      std::vector<double> expected(x.begin(), x.end());
      for (std::size_t t = 0; t < positions.size(); ++t) {
        for (std::size_t h = 0; h < heads; ++h) {
          const std::size_t head = (t * heads + h) * head_dim;
          for (std::uint32_t i = 0; i < dims / 2; ++i) {
            const double angle = positions[t].value * std::pow(10000.0, -2.0 * i / dims);
            const std::size_t a = head + (style == RotaryStyle::kHalfSplit ? i : 2 * i);
            const std::size_t b = head + (style == RotaryStyle::kHalfSplit ? i + dims / 2 : 2 * i + 1);
            expected[a] = static_cast<double>(x[a]) * std::cos(angle) - static_cast<double>(x[b]) * std::sin(angle);
            expected[b] = static_cast<double>(x[b]) * std::cos(angle) + static_cast<double>(x[a]) * std::sin(angle);
          }
        }
      }
      on_every_target([&] {
        INFO("dims " << dims);
        std::vector<float> rotated = x;
        const auto ops = make_fast_ops(2);
        const RotaryRule rule = plain_rotary(style, dims, 10000.0);
        ops->rotate(rotated, {positions, {}}, heads, head_dim, 0, rule);
        CHECK(deviation(rotated, expected) <= 2e-4);  // an angle near 2000 is rounded to 1.2e-4
        CHECK(ops->counters()[Cause::kActivations] == 2 * x.size() * 4);
        // Kept tables must not serve other positions.
        std::vector<float> other(x.begin(), x.begin() + heads * head_dim);
        const std::vector<TokenPos> zero = {TokenPos(0)};
        ops->rotate(other, {zero, {}}, heads, head_dim, 0, rule);
        CHECK(std::equal(other.begin(), other.end(), x.begin()));
      });
    }
  }
}

TEST_CASE("a gated silu equals gate / (1 + e^-gate) · up, also in place and at the ends of the range") {
  for (const std::size_t count : {1, 15, 16, 17, 1000, 70000}) {
    std::vector<float> gate = numbers(count, 24);
    for (float& g : gate) g *= 20;
    if (count > 100) {
      gate[3] = -200;
      gate[4] = 200;
      gate[5] = -87.5F;
      gate[6] = 0;
    }
    const std::vector<float> up = numbers(count, 25);
    std::vector<double> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto g = static_cast<double>(gate[i]);
      expected[i] = g / (1 + std::exp(-g)) * static_cast<double>(up[i]);
    }
    on_every_target([&] {
      INFO("count " << count);
      std::vector<float> out = poisoned(count);
      const auto ops = make_fast_ops(2);
      ops->gated(Activation::kSilu, gate, up, out);
      CHECK(deviation(out, expected) <= 1e-6);
      CHECK(ops->counters()[Cause::kActivations] == 3 * count * 4);
      std::vector<float> in_place = gate;
      ops->gated(Activation::kSilu, in_place, up, in_place);
      CHECK(same_bits(in_place, out));
    });
  }
}

TEST_CASE("a NaN gate gives NaN") {
  on_every_target([] {
    for (const std::size_t last : {0, 39}) {
      std::vector<float> gate(last + 1, 1.0F);
      gate[last] = std::numeric_limits<float>::quiet_NaN();
      std::vector<float> out(last + 1, 0.0F);
      make_fast_ops(1)->gated(Activation::kSilu, gate, gate, out);
      CHECK(std::isnan(out[last]));
    }
  });
}

TEST_CASE("add_residual adds, exactly as one addition a number, and counts two reads and a write") {
  for (const std::size_t count : {1, 15, 33, 70001}) {
    const std::vector<float> x = numbers(count, 26);
    const std::vector<float> y = numbers(count, 27);
    on_every_target([&] {
      std::vector<float> sum = x;
      const auto ops = make_fast_ops(2);
      ops->add_residual(sum, y);
      bool equal = true;
      for (std::size_t i = 0; i < count; ++i) equal = equal && sum[i] == x[i] + y[i];
      CHECK(equal);
      CHECK(ops->counters()[Cause::kActivations] == 3 * count * 4);
    });
  }
}
