// Attention weights of one byte: an exponent of five bits and a mantissa of three, 2^(E − 31) · (1 + m / 8), and 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvroof {

// The code of the largest weight that is not above `weight`, which is ≥ 0; 255 for all from 1.875 on.
std::uint8_t floor_code(float weight);

// What is kept of a row beside its codes.
struct RowPeak {
  float sum = 0;            // of its exponentials e^x / 2^n, n of the largest logit, as exponentials() makes them
  std::uint32_t token = 0;  // the one with the largest, whose code is not used:
  float weight = 0;         // this takes up what the others' rounding has lost, so that the row's sum is exact; but it
                            // is never less than half of what it was
  float offset = 0;         // a logit is the logarithm of its exponential and this
};

// Codes of successive rows of a layer. Each weight becomes one of the two codes that it lies between, and errs by up to
// an eighth of itself. Which one: that with which what a token was paid in all rows so far, as shares of each row, errs
// less. So sums over rows err by about one rounding, not by one a row.
class RowEncoder {
 public:
  // Another layer of so many query heads and tokens follows.
  void start_layer(std::uint32_t heads, std::uint32_t tokens);
  // One row of logits, [position + 1], of which the first `hidden` are not seen and get code 0. Different heads may be
  // encoded at once.
  RowPeak encode(std::uint32_t head, std::span<const float> logits, std::uint32_t hidden,
                 std::span<std::uint8_t> codes);

 private:
  std::size_t tokens_ = 0;
  std::vector<float> owed_;  // [heads, tokens]: shares that the codes so far are short of
};

// What a row's codes say of its logits: the natural logarithms of their weights, and `offset`; of code 0, which all
// weights below 2^−31 may have, that of half the smallest weight. −∞ for those that are hidden.
void decode_row(std::span<const std::uint8_t> codes, const RowPeak& peak, std::uint32_t hidden,
                std::span<float> logits);

}  // namespace kvroof
