// What the operators of one token read, write and multiply; for the sources of the traffic alone.
#pragma once

#include <cstdint>

#include "sim/model/model_shape.hpp"

namespace kvroof {

// What linears of one token read, write and multiply: `in` elements in, `out` elements out.
struct Elements {
  std::uint64_t moved = 0;     // read and written by all operators
  std::uint64_t products = 0;  // multiplications of the linears

  void add_linear(std::uint64_t in, std::uint64_t out, std::uint64_t times = 1) {
    moved += times * (in + out);
    products += times * in * out;
  }
  // One linear for each head, with rows of its own.
  void add_heads(std::uint64_t heads, std::uint64_t in, std::uint64_t out) {
    moved += heads * (in + out);
    products += heads * in * out;
  }
  void add_mlp(const ModelShape& s, std::uint64_t width, std::uint64_t ffn, std::uint64_t times = 1) {
    const std::uint64_t inward = s.mlp == MlpKind::kGated ? 2 : 1;
    add_linear(width, ffn, times * inward);
    moved += times * (inward + 1) * ffn;  // the activation
    add_linear(ffn, width, times);
  }
  // `times` elements of every layer's operators.
  void add(const Elements& other, std::uint64_t times) {
    moved += times * other.moved;
    products += times * other.products;
  }
};

// One token up to the last layer.
Elements token_elements(const ModelShape& shape);
// One row of logits.
Elements logit_elements(const ModelShape& shape);

}  // namespace kvroof
