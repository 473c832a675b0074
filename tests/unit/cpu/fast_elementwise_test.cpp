#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

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

TEST_CASE("add_residual adds, exactly as one addition a number, and counts two reads and a write") {
  for (const std::size_t count : {1, 15, 33, 70001}) {
    const std::vector<float> x = numbers(count, 26);
    const std::vector<float> y = numbers(count, 27);
    on_every_target([&] {
      std::vector<float> sum = x;
      const auto ops = make_fast_ops(2);
      ops->add_residual(sum, y, 1);
      bool equal = true;
      for (std::size_t i = 0; i < count; ++i) equal = equal && sum[i] == x[i] + y[i];
      CHECK(equal);
      CHECK(ops->counters()[Cause::kActivations] == 3 * count * 4);
      ops->add_residual(sum, y, -1);
      CHECK(deviation(sum, std::vector<double>(x.begin(), x.end())) <= 1e-6);
    });
  }
}
