#include "sim/core/alibi.hpp"

#include "tests/catch.hpp"

using namespace kvroof;

TEST_CASE("Falcon's ALiBi bias rounds slope, positions and products to bf16") {
  // Twelve heads have 2^-0.5 among their slopes, 0.70703125 in bf16, as build_alibi_tensor of transformers makes it.
  // Products with positions 3, 100 and 301 (bf16: 300), in bf16: 2.125, 70.5 and 212.
  const AlibiBias bias{0.70710678F, 0.25F};
  CHECK(bias.of(TokenPos(3), TokenPos(301)) == 0.25F * (2.125F - 212.0F));
  CHECK(bias.of(TokenPos(100), TokenPos(301)) == 0.25F * (70.5F - 212.0F));
  CHECK(bias.of(TokenPos(301), TokenPos(301)) == 0);
}
