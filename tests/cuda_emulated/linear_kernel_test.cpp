#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cuda/split_k.hpp"
#include "kernels/cuda/linear_many.cuh"
#include "sim/core/dtype.hpp"
#include "tests/catch.hpp"

using namespace kvroof;
using namespace kvroof::cuda;

namespace {

struct Stored16 {
  std::vector<std::byte> bytes;
  std::vector<float> values;
};

Stored16 stored(Stored type, std::size_t count, float scale, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const DType as = type == Stored::kBF16 ? DType::kBF16 : DType::kF16;
  Stored16 out;
  out.values.resize(count);
  out.bytes.resize(count * 2);
  for (float& v : out.values) v = scale * normal(random);
  convert_from_float(as, out.values, out.bytes.data());
  convert_to_float(as, out.bytes.data(), out.values);
  return out;
}

struct Case {
  std::uint32_t tokens = 1, cols = 64, rows = 32;
  NormMode norm = NormMode::kNone;
  ActivationMode activation = ActivationMode::kNone;
  bool gated = false, bias = false, add = false;
  float softcap = 0;
};

double activated_twin(ActivationMode f, double x) {
  switch (f) {
    case ActivationMode::kSilu: return x / (1 + std::exp(-x));
    case ActivationMode::kGelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case ActivationMode::kGeluTanh: return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationMode::kRelu: return std::max(x, 0.0);
    case ActivationMode::kRelu2: return x > 0 ? x * x : 0;
    case ActivationMode::kClampedSwiglu: return std::min(x, 7.0) / (1 + std::exp(-1.702 * std::min(x, 7.0)));
    default: return x;
  }
}

// `tolerance` is relative to the largest result: exact vectors, or rounded to the weights' type.
template <class Kernel>
void check_case(const Case& c, Stored type, double tolerance, const Kernel& run_kernel) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> x(std::size_t{c.tokens} * c.cols), out(std::size_t{c.tokens} * c.rows);
  for (float& v : x) v = normal(random) + 0.3F;
  for (float& v : out) v = c.add ? normal(random) : std::numeric_limits<float>::quiet_NaN();
  const Stored16 w = stored(type, std::size_t{c.rows} * c.cols, 0.1F, random);
  const Stored16 up = stored(type, std::size_t{c.rows} * c.cols, 0.1F, random);
  const Stored16 scale = stored(type, c.cols, 1, random), shift = stored(type, c.cols, 1, random);
  const Stored16 bias = stored(type, c.rows, 1, random), up_bias = stored(type, c.rows, 1, random);
  LinearArguments a;
  a.x = x.data();
  a.x_row = c.cols;
  a.out_row = c.rows;
  a.tokens = c.tokens;
  a.norm = c.norm;
  a.norm_scale = scale.bytes.data();
  a.norm_bias = c.norm == NormMode::kLayer ? shift.bytes.data() : nullptr;
  a.norm_eps = 1e-5F;
  a.norm_offset = c.norm == NormMode::kRms ? 1.0F : 0.0F;
  a.w = {w.bytes.data(), c.rows, c.cols};
  if (c.gated) a.up = {up.bytes.data(), c.rows, c.cols};
  if (c.bias) a.bias = bias.bytes.data();
  if (c.bias && c.gated) a.up_bias = up_bias.bytes.data();
  a.activation = c.activation;
  a.add = c.add;
  a.softcap = c.softcap;
  const std::vector<float> before = out;
  a.out = out.data();
  run_kernel(a);

  double largest = 0, worst = 0;
  for (std::uint32_t t = 0; t < c.tokens; ++t) {
    double mean = 0, variance = 0;
    for (std::uint32_t i = 0; i < c.cols; ++i) mean += static_cast<double>(x[t * c.cols + i]) / c.cols;
    if (c.norm != NormMode::kLayer) mean = 0;
    for (std::uint32_t i = 0; i < c.cols; ++i) variance += std::pow(static_cast<double>(x[t * c.cols + i]) - mean,
        2) / c.cols;
    for (std::uint32_t r = 0; r < c.rows; ++r) {
      double sums[2] = {c.bias ? bias.values[r] : 0.0, c.bias ? up_bias.values[r] : 0.0};
      for (std::uint32_t i = 0; i < c.cols; ++i) {
        double value = x[t * c.cols + i];
        if (c.norm != NormMode::kNone) {
          value = (value - mean) / std::sqrt(variance + 1e-5) * (static_cast<double>(scale.values[i]) +
              static_cast<double>(a.norm_offset));
          if (c.norm == NormMode::kLayer) value += static_cast<double>(shift.values[i]);
        }
        sums[0] += value * static_cast<double>(w.values[std::size_t{r} * c.cols + i]);
        sums[1] += value * static_cast<double>(up.values[std::size_t{r} * c.cols + i]);
      }
      if (c.activation == ActivationMode::kClampedSwiglu) sums[1] = std::clamp(sums[1], -7.0, 7.0) + 1;
      double expected = activated_twin(c.activation, sums[0]) * (c.gated ? sums[1] : 1);
      if (c.softcap > 0) expected = c.softcap * std::tanh(expected / c.softcap);
      if (c.add) expected += static_cast<double>(before[t * c.rows + r]);
      const double got = out[t * c.rows + r];
      REQUIRE(std::isfinite(got));
      largest = std::max(largest, std::abs(expected));
      worst = std::max(worst, std::abs(got - expected));
    }
  }
  INFO("tokens " << c.tokens << " cols " << c.cols << " rows " << c.rows);
  CHECK(worst <= tolerance * largest);
}

// By one block, which makes all rows, by two and by as many as have one round each.
template <Stored kType, unsigned kTokens>
void check_few(const Case& c) {
  const unsigned rounds = (c.rows + kLinearWarps - 1) / kLinearWarps;
  for (const unsigned blocks : {1U, 2U, rounds}) {
    INFO(blocks << " blocks");
    check_case(c, kType, 2e-5, [=](const LinearArguments& a) {
      emulator::run({blocks}, {kLinearThreads}, [&] { linear<kType, kTokens>(a); });
    });
  }
}

template <Stored kType, unsigned kTile, unsigned kSlices = 1>
void check_many(const Case& c) {
  check_case(c, kType, kType == Stored::kBF16 ? 1e-2 : 2e-3, [](const LinearArguments& a) {
    const unsigned blocks = (a.w.rows + kRowsOfBlock<kSlices> - 1) / kRowsOfBlock<kSlices>;
    const unsigned tiles = (a.tokens + kTile - 1) / kTile;
    emulator::run({blocks, tiles}, {kLinearThreads}, [&] { linear_many<kType, kTile, kSlices>(a); });
  });
}

// By blocks that share the columns, as the launcher has them, and norms that cannot wait; or with room for
// one that can.
template <Stored kType>
void check_shared(const Case& c, std::uint32_t splits, bool has_room = false) {
  INFO(splits << " splits");
  check_case(c, kType, kType == Stored::kBF16 ? 1e-2 : 2e-3, [=](LinearArguments a) {
    const unsigned blocks = (a.w.rows + kSplitRows - 1) / kSplitRows;
    const std::vector<float> poison(std::size_t{blocks} * splits * kSplitFloats,
                                    std::numeric_limits<float>::quiet_NaN());
    std::vector<float> sums = poison;
    std::vector<unsigned> finished(blocks, 0);
    a.split_k = {splits, sums.data(), finished.data()};
    std::vector<float> norms(2 * kLargeTile, std::numeric_limits<float>::quiet_NaN());
    const bool made = c.norm == NormMode::kLayer || (c.norm == NormMode::kRms && kType == Stored::kF16);
    if (made || has_room) a.norms = norms.data();
    Stream stream;
    run_linear(stream, kType, a);
    for (const unsigned done : finished) CHECK(done == 0);
    if (splits > 1) CHECK(std::isfinite(sums[(splits - 1) * std::size_t{kSplitFloats}]));  // the last split was one
    CHECK(std::isfinite(norms[2 * c.tokens - 1]) == made);
  });
}

}  // namespace

TEST_CASE("a product for few tokens equals the product in double precision, whatever comes before and after it") {
  check_few<Stored::kBF16, 1>({.cols = 96, .rows = 37});
  check_few<Stored::kF16, 1>({.cols = 2056, .rows = 17, .norm = NormMode::kRms, .bias = true});
  check_few<Stored::kBF16, 4>({.tokens = 3, .cols = 328, .rows = 40, .norm = NormMode::kLayer, .add = true});
  check_few<Stored::kBF16, 4>({.tokens = 4, .cols = 64, .rows = 24, .norm = NormMode::kRms,
                               .activation = ActivationMode::kSilu, .gated = true, .bias = true});
  check_few<Stored::kF16, 1>({.cols = 64, .rows = 24, .activation = ActivationMode::kGelu});
  check_few<Stored::kF16, 1>({.cols = 64, .rows = 24, .activation = ActivationMode::kGeluTanh, .softcap = 2});
  check_few<Stored::kF16, 1>({.cols = 64, .rows = 24, .activation = ActivationMode::kRelu});
  check_few<Stored::kF16, 1>({.cols = 64, .rows = 24, .activation = ActivationMode::kRelu2});
  // Of so many columns gates and ups go beyond the limits of 7.
  check_few<Stored::kBF16, 1>(
      {.cols = 8192, .rows = 40, .activation = ActivationMode::kClampedSwiglu, .gated = true, .bias = true});
}

TEST_CASE("a product for few tokens is made round after round, whether x lies in shared memory at once or not") {
  check_few<Stored::kBF16, 1>({.cols = 1032, .rows = 50, .norm = NormMode::kLayer, .bias = true});
  check_few<Stored::kF16, 1>({.cols = 8200, .rows = 35, .norm = NormMode::kRms, .add = true});
  check_few<Stored::kBF16, 1>({.cols = 9480, .rows = 19, .norm = NormMode::kLayer,
                               .activation = ActivationMode::kSilu, .gated = true, .bias = true});
  check_few<Stored::kBF16, 4>({.tokens = 4, .cols = 4360, .rows = 35, .norm = NormMode::kRms});
}

TEST_CASE("a product for many tokens equals it within the rounding of the vectors") {
  check_many<Stored::kBF16, 16>({.tokens = 16, .cols = 128, .rows = 128});
  check_many<Stored::kF16, 16>({.tokens = 9, .cols = 296, .rows = 141, .norm = NormMode::kRms, .bias = true});
  check_many<Stored::kF16, 16>({.tokens = 35, .cols = 64, .rows = 20, .norm = NormMode::kLayer, .add = true});
  check_many<Stored::kF16, 64>({.tokens = 70, .cols = 96, .rows = 33, .activation = ActivationMode::kSilu,
                                .gated = true, .bias = true});
}

TEST_CASE("warps that share the columns of a matrix's rows add up to its product, whatever their number") {
  check_many<Stored::kBF16, 16, 4>({.tokens = 16, .cols = 128, .rows = 128, .norm = NormMode::kLayer});
  check_many<Stored::kF16, 16, 4>({.tokens = 9, .cols = 296, .rows = 141, .norm = NormMode::kRms, .bias = true});
  check_many<Stored::kF16, 16, 8>({.tokens = 5, .cols = 64, .rows = 20, .add = true});
  check_many<Stored::kBF16, 16, 2>({.tokens = 12, .cols = 328, .rows = 70, .activation = ActivationMode::kSilu,
                                    .gated = true, .bias = true});
}

TEST_CASE("blocks that share the columns of a matrix's rows add up to its product, and norms wait for all of them") {
  check_shared<Stored::kBF16>({.tokens = 17, .cols = 1024, .rows = 130, .add = true}, 4);
  check_shared<Stored::kBF16>({.tokens = 64, .cols = 648, .rows = 70, .norm = NormMode::kRms, .bias = true}, 3);
  check_shared<Stored::kBF16>({.tokens = 33, .cols = 520, .rows = 40, .norm = NormMode::kRms,
                               .activation = ActivationMode::kSilu, .gated = true, .bias = true}, 2);
  check_shared<Stored::kF16>({.tokens = 20, .cols = 2056, .rows = 128, .bias = true}, 8);
}

TEST_CASE("norms that cannot wait for their product are made by a launch before it, and columns are shared as well") {
  check_shared<Stored::kBF16>({.tokens = 64, .cols = 648, .rows = 70, .norm = NormMode::kLayer, .bias = true}, 3);
  check_shared<Stored::kF16>({.tokens = 33, .cols = 520, .rows = 40, .norm = NormMode::kRms,
                              .activation = ActivationMode::kSilu, .gated = true, .bias = true}, 2);
  check_shared<Stored::kBF16>({.tokens = 5, .cols = 296, .rows = 141, .norm = NormMode::kLayer, .add = true}, 1);
  check_shared<Stored::kF16>({.tokens = 16, .cols = 520, .rows = 33, .norm = NormMode::kLayer}, 1);
}

TEST_CASE("a norm that waits for its product is not made before it as well, even where there is room") {
  const Case many = {.tokens = 40, .cols = 648, .rows = 70, .norm = NormMode::kRms, .bias = true};
  check_shared<Stored::kBF16>(many, 3, true);
  check_shared<Stored::kBF16>(many, 1, true);
}

TEST_CASE("norms are made before products of 2 to 64 vectors, unless they wait for them") {
  Stream stream;
  const SplitKMemory split_k(stream, 132);
  const auto made = [&](std::uint32_t tokens, NormMode norm, Stored type, HeadMatrices heads = {}) {
    LinearArguments a;
    a.tokens = tokens;
    a.norm = norm;
    a.w = {nullptr, 4096, 4096};
    a.heads = heads;
    split_k.cut(type, a);
    CHECK(a.split_k.splits == 1);  // there is no room for sums yet
    return a.norms != nullptr;
  };
  CHECK(!made(1, NormMode::kLayer, Stored::kBF16));
  CHECK(made(2, NormMode::kLayer, Stored::kBF16));
  CHECK(made(4, NormMode::kRms, Stored::kBF16));
  CHECK(!made(5, NormMode::kRms, Stored::kBF16));
  CHECK(made(5, NormMode::kLayer, Stored::kBF16));
  CHECK(made(64, NormMode::kLayer, Stored::kBF16));
  CHECK(!made(65, NormMode::kLayer, Stored::kBF16));
  CHECK(!made(64, NormMode::kRms, Stored::kBF16));
  CHECK(made(64, NormMode::kRms, Stored::kF16));
  CHECK(!made(64, NormMode::kNone, Stored::kF16));
  CHECK(!made(64, NormMode::kLayer, Stored::kBF16, {2, 0, 0}));
}

TEST_CASE("an RMS norm in bf16 waits for its product, one tile or many") {
  check_many<Stored::kBF16, 16>({.tokens = 9, .cols = 296, .rows = 141, .norm = NormMode::kRms, .bias = true});
  check_many<Stored::kBF16, 16, 4>({.tokens = 16, .cols = 520, .rows = 33, .norm = NormMode::kRms});
  check_many<Stored::kBF16, 64>({.tokens = 70, .cols = 136, .rows = 33, .norm = NormMode::kRms,
                                 .activation = ActivationMode::kSilu, .gated = true});
}

TEST_CASE("columns are shared by as many blocks as two for each multiprocessor need, of 256 columns at least") {
  CHECK(k_splits(4096, 4096, 132) == 8);    // 32 blocks of rows
  CHECK(k_splits(14336, 4096, 132) == 2);
  CHECK(k_splits(128256, 4096, 132) == 1);
  CHECK(k_splits(512, 1024, 132) == 4);     // eight tiles
  CHECK(k_splits(64, 128, 132) == 1);
}
