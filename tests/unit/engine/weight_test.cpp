#include "kernels/engine/weight.hpp"

#include <array>
#include <cstring>

#include "tests/catch.hpp"
#include "tests/support/loaded_model.hpp"

using namespace kvroof;

namespace {

float element(const Weight& weight, std::size_t i) {
  float x = 0;
  convert_to_float(weight.type, weight.data.data() + i * size_of(weight.type), {&x, 1});
  return x;
}

}  // namespace

TEST_CASE("a weight keeps elements of its own type bit for bit") {
  const std::array<std::uint16_t, 6> bits = {0x3f80, 0xbf80, 0x0001, 0x7f80, 0x8000, 0x4049};
  const Weight w = make_weight(DType::kBF16, reinterpret_cast<const std::byte*>(bits.data()), 2, 3, DType::kBF16);
  CHECK(std::memcmp(w.data.data(), bits.data(), sizeof bits) == 0);
  CHECK(w.bytes() == 12);
  CHECK(w.view().count == 2);
  CHECK(w.view().width == 3);
}

TEST_CASE("a weight that is converted rounds to nearest, ties to even") {
  // 1 + 2^-8 lies half way between two bf16 numbers; the even one is 1. 1 + 3·2^-8 goes up to 1 + 2^-6.
  const std::array<float, 3> floats = {1.00390625F, 1.01171875F, -2.5F};
  const Weight w = make_weight(DType::kF32, reinterpret_cast<const std::byte*>(floats.data()), 1, 3, DType::kBF16);
  CHECK(element(w, 0) == 1.0F);
  CHECK(element(w, 1) == 1.015625F);
  CHECK(element(w, 2) == -2.5F);
}

TEST_CASE("a conversion of many elements touches each of them") {
  std::vector<float> floats(40'000);
  for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(i % 251);
  const Weight w = make_weight(DType::kF32, reinterpret_cast<const std::byte*>(floats.data()), 40, 1000, DType::kF16);
  for (std::size_t i = 0; i < floats.size(); ++i) REQUIRE(element(w, i) == floats[i]);
}

TEST_CASE("weights begin on a cache line, large ones on a 2 MiB page") {
  for (const std::size_t size : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 20}) {
    CHECK(reinterpret_cast<std::uintptr_t>(AlignedBytes(size).data()) % 64 == 0);
  }
  const AlignedBytes large(std::size_t{4} << 20);
  CHECK(reinterpret_cast<std::uintptr_t>(large.data()) % (std::size_t{2} << 20) == 0);
  CHECK(AlignedBytes(0).size() == 0);
}

TEST_CASE("memory that cannot be had is refused rather than wrapped") {
  CHECK_THROWS_AS(AlignedBytes(~std::size_t{0} - 5), std::bad_alloc);
}
