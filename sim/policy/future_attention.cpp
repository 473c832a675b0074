#include "sim/policy/future_attention.hpp"

#include <algorithm>

namespace kvroof {

FutureAttention::FutureAttention(std::uint32_t query_heads, std::uint32_t prompt, std::uint32_t tokens)
    : prompt_(prompt), tokens_(tokens), sums_(std::size_t{query_heads} * (tokens - prompt) * tokens) {}

void FutureAttention::set_row(std::uint32_t query_head, TokenPos position, std::span<const float> weights) {
  std::ranges::copy(weights, sums_.begin() + static_cast<std::ptrdiff_t>(offset(query_head, position.value - prompt_)));
}

void FutureAttention::finish(std::uint32_t query_head) {
  for (std::uint32_t step = steps(); step-- > 1;) {
    const float* later = sums_.data() + offset(query_head, step);
    float* sums = sums_.data() + offset(query_head, step - 1);
    for (std::uint32_t token = 0; token < tokens_; ++token) sums[token] += later[token];
  }
}

}  // namespace kvroof
