#include "tests/unit/cpu/twin.hpp"

using namespace kvroof;
using namespace kvroof::twin;

namespace {

constexpr std::size_t kWidths[] = {1, 3, 16, 31, 64, 100, 257, 4099};

// Rows of x under the formulas of Ops::norm, in double precision.
std::vector<double> expected_norm(std::span<const float> x, const Norm& norm, const NormRule& rule) {
  const std::size_t width = norm.scale.cols;
  const auto count = static_cast<double>(width);
  std::vector<double> out(x.size());
  for (std::size_t row = 0; row < x.size() / width; ++row) {
    const std::size_t of_scale = row % norm.scale.rows;
    double mean = 0;
    for (std::size_t i = 0; i < width; ++i) mean += static_cast<double>(x[row * width + i]) / count;
    if (rule.kind == NormKind::kRms) mean = 0;
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += std::pow(static_cast<double>(x[row * width + i]) - mean, 2);
    const double root = std::sqrt(squares / count + static_cast<double>(rule.eps));
    for (std::size_t i = 0; i < width; ++i) {
      const double scale = at(norm.scale.view(), of_scale, i) + static_cast<double>(rule.offset);
      out[row * width + i] = (static_cast<double>(x[row * width + i]) - mean) / root * scale;
      if (!norm.bias.empty()) out[row * width + i] += at(norm.bias.view(), of_scale, i);
    }
  }
  return out;
}

// Into another place and in place; what is counted is whatever the norm holds, once, and x in and out.
void check_norm(const std::vector<float>& x, const Norm& norm, const NormRule& rule) {
  const std::vector<double> expected = expected_norm(x, norm, rule);
  on_every_back_end([&](Ops& ops) {
    INFO(name_of(norm.scale.type) << ", width " << norm.scale.cols << ", offset " << rule.offset << ", bias "
                                  << !norm.bias.empty());
    std::vector<float> out = poisoned(x.size());
    ops.norm(x, norm, rule, out);
    CHECK(deviation(out, expected) <= 2e-6);
    CHECK(ops.counters()[Cause::kWeights] == norm.scale.bytes() + norm.bias.bytes());
    CHECK(ops.counters()[Cause::kActivations] == 2 * x.size() * 4);
    std::vector<float> in_place = x;
    ops.norm(in_place, norm, rule, in_place);
    CHECK(same_bits(in_place, out));
  });
}

}  // namespace

TEST_CASE("an RMS norm equals x / sqrt(mean(x²) + eps) · (scale + offset) for every width and type") {
  for (const DType type : kTypes) {
    for (const std::size_t width : kWidths) {
      for (const float offset : {0.0F, 1.0F}) {
        check_norm(numbers(5 * width, 1), {random_weight(type, 1, width, 2), {}}, {NormKind::kRms, 1e-5F, offset});
      }
    }
  }
}

TEST_CASE("a layer norm equals (x − mean) / sqrt(variance + eps) · scale + bias for every width and type") {
  for (const DType type : kTypes) {
    for (const std::size_t width : kWidths) {
      std::vector<float> x = numbers(5 * width, 3);
      for (float& value : x) value += 2;  // a mean that matters
      const NormRule rule{NormKind::kLayer, 1e-3F};
      check_norm(x, {random_weight(type, 1, width, 4), random_weight(type, 1, width, 5)}, rule);
      check_norm(x, {random_weight(type, 1, width, 4), {}}, rule);
    }
  }
}

TEST_CASE("the offset of a layer norm is added to its scale, and not to its bias") {
  for (const std::size_t width : kWidths) {
    const NormRule rule{NormKind::kLayer, 1e-3F, 1};
    const std::vector<float> x = numbers(2 * width, 6);
    check_norm(x, {random_weight(DType::kF32, 1, width, 7), random_weight(DType::kF32, 1, width, 8)}, rule);
    check_norm(x, {random_weight(DType::kBF16, 1, width, 7), {}}, rule);
  }
}

TEST_CASE("with a scale row for each head, row r of the input takes row r mod heads") {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    const Norm norm{random_weight(DType::kBF16, 3, 48, 8), random_weight(DType::kBF16, 3, 48, 9)};
    const Norm plain{random_weight(DType::kBF16, 3, 48, 8), {}};
    check_norm(numbers(4 * 3 * 48, 10), kind == NormKind::kRms ? plain : norm, {kind, 1e-5F});
  }
}

TEST_CASE("the norm of a row has the same bits for 1 and 16 threads, alone and among many") {
  const std::size_t width = 515;
  const std::vector<float> x = numbers(200 * width, 11);
  const Norm norm{random_weight(DType::kBF16, 1, width, 12), random_weight(DType::kBF16, 1, width, 13)};
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    const Norm rms{random_weight(DType::kBF16, 1, width, 12), {}};
    const Norm& used = kind == NormKind::kRms ? rms : norm;
    std::vector<float> one = poisoned(x.size());
    std::vector<float> many = poisoned(x.size());
    make_fast_ops(1)->norm(x, used, {kind, 1e-5F}, one);
    make_fast_ops(16)->norm(x, used, {kind, 1e-5F}, many);
    CHECK(same_bits(one, many));
    std::vector<float> alone = poisoned(width);
    make_fast_ops(2)->norm(std::span(x).subspan(150 * width, width), used, {kind, 1e-5F}, alone);
    CHECK(same_bits(alone, std::span(one).subspan(150 * width, width)));
  }
}

TEST_CASE("a NaN spoils its own row of a norm and no other") {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const std::size_t bad : {std::size_t{0}, std::size_t{36}}) {
      std::vector<float> x = numbers(2 * 37, 14);
      x[bad] = std::numeric_limits<float>::quiet_NaN();
      const Norm norm{random_weight(DType::kF32, 1, 37, 15), {}};
      on_every_back_end([&](Ops& ops) {
        std::vector<float> out(x.size());
        ops.norm(x, norm, {kind, 1e-5F}, out);
        for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(out[i]) == (i < 37));
      });
    }
  }
}
