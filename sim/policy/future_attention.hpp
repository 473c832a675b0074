// FutureAttention: what the decoded queries of a recorded layer pay to each token, for bounds that know the future.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/core/ids.hpp"

namespace kvroof {

class FutureAttention {
 public:
  FutureAttention() = default;
  // Of a sequence of `tokens` tokens, `prompt` of them in the prompt.
  FutureAttention(std::uint32_t query_heads, std::uint32_t prompt, std::uint32_t tokens);
  // Memory that it takes.
  static std::uint64_t bytes(std::uint32_t query_heads, std::uint32_t prompt, std::uint32_t tokens) {
    return std::uint64_t{query_heads} * (tokens - prompt) * tokens * sizeof(float);
  }

  // The softmax weights that the query at `position` ≥ prompt pays to tokens 0 … position.
  void set_row(std::uint32_t query_head, TokenPos position, std::span<const float> weights);
  // After all rows of the head: adds them up from the last to the first.
  void finish(std::uint32_t query_head);

  [[nodiscard]] std::uint32_t steps() const { return tokens_ - prompt_; }
  // What the queries after `step` decoded tokens, step < steps(), pay to each token: [tokens].
  [[nodiscard]] std::span<const float> after(std::uint32_t step, std::uint32_t query_head) const {
    return std::span(sums_).subspan(offset(query_head, step), tokens_);
  }

 private:
  [[nodiscard]] std::size_t offset(std::uint32_t query_head, std::uint32_t step) const {
    return (std::size_t{query_head} * steps() + step) * tokens_;
  }

  std::uint32_t prompt_ = 0;
  std::uint32_t tokens_ = 0;
  std::vector<float> sums_;  // [query_heads][steps][tokens]
};

}  // namespace kvroof
