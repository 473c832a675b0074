#include "kernels/cpu/reference_ops.hpp"

#include <cmath>

#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;

namespace {

Weight weight_of(const std::vector<float>& values, std::size_t rows, DType type = DType::kF32) {
  return make_weight(DType::kF32, reinterpret_cast<const std::byte*>(values.data()), rows, values.size() / rows, type);
}

}  // namespace

TEST_CASE("rotary embedding turns pair i of position p by p · theta^(-2i/dims), half-split or adjacent") {
  ReferenceOps ops;
  const std::vector<TokenPos> positions = {TokenPos(3)};
  const double slow = 3 * std::pow(100.0, -0.5);
  // Four dimensions are rotated, the fifth and sixth stay.
  std::vector<float> split = {1, 2, 3, 4, 5, 6};
  ops.rotate(split, {positions, {}}, 1, 6, 0, plain_rotary(RotaryStyle::kHalfSplit, 4, 100.0));
  CHECK(split[0] == Approx(1 * std::cos(3.0) - 3 * std::sin(3.0)));
  CHECK(split[2] == Approx(3 * std::cos(3.0) + 1 * std::sin(3.0)));
  CHECK(split[1] == Approx(2 * std::cos(slow) - 4 * std::sin(slow)));
  CHECK(split[3] == Approx(4 * std::cos(slow) + 2 * std::sin(slow)));
  CHECK(split[4] == 5);
  CHECK(split[5] == 6);
  std::vector<float> pairs = {1, 2, 3, 4, 5, 6};
  ops.rotate(pairs, {positions, {}}, 1, 6, 0, plain_rotary(RotaryStyle::kAdjacentPairs, 4, 100.0));
  CHECK(pairs[0] == Approx(1 * std::cos(3.0) - 2 * std::sin(3.0)));
  CHECK(pairs[1] == Approx(2 * std::cos(3.0) + 1 * std::sin(3.0)));
  CHECK(pairs[2] == Approx(3 * std::cos(slow) - 4 * std::sin(slow)));
}

TEST_CASE("a linear layer multiplies by the transpose and adds the bias to every token") {
  ReferenceOps ops;
  const Weight w = weight_of({1, 2, 3, 4, 5, 6}, 2);  // [2 out, 3 in]
  const Weight bias = weight_of({10, 20}, 1);
  const std::vector<float> x = {1, 0, -1, 2, 1, 0};
  std::vector<float> out(4);
  ops.linear(x, w, &bias, out);
  CHECK(out == std::vector<float>{8, 18, 14, 33});
  CHECK(ops.counters()[Cause::kWeights] == (6 + 2) * 4);
  CHECK(ops.counters()[Cause::kActivations] == (6 + 4) * 4);
}

TEST_CASE("the RMS norm divides by the root of the mean square and multiplies by its weight") {
  ReferenceOps ops;
  const std::vector<float> x = {3, 4, 0, 0};
  std::vector<float> out(4);
  ops.norm(x, {weight_of({1, 2, 1, 1}, 1, DType::kBF16), {}}, {NormKind::kRms, 0.0F}, out);
  CHECK(out[0] == Approx(3 / 2.5));
  CHECK(out[1] == Approx(2 * 4 / 2.5));
  CHECK(ops.counters()[Cause::kWeights] == 4 * 2);
}

TEST_CASE("an embedding copies one row for each id and counts those rows alone") {
  ReferenceOps ops;
  const std::vector<std::int64_t> ids = {2, 0};
  std::vector<float> out(4);
  ops.embed(weight_of({1, 2, 3, 4, 5, 6}, 3, DType::kF16), ids, 1, out);
  CHECK(out == std::vector<float>{5, 6, 1, 2});
  CHECK(ops.counters()[Cause::kWeights] == 4 * 2);
  CHECK(ops.counters()[Cause::kActivations] == 4 * 4);
}

TEST_CASE("the gate passes through x / (1 + e^-x)") {
  ReferenceOps ops;
  const std::vector<float> gate = {0, 1, -2};
  const std::vector<float> up = {5, 2, 3};
  std::vector<float> out(3);
  ops.gated(Activation::kSilu, gate, up, out);
  CHECK(out[0] == 0);
  CHECK(out[1] == Approx(2 / (1 + std::exp(-1.0))));
  CHECK(out[2] == Approx(3 * -2 / (1 + std::exp(2.0))));
}
