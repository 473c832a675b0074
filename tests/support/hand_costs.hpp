// Times and memory of a server that a hand can add up.
#pragma once

#include <algorithm>

#include "sim/serving/replica.hpp"

namespace kvroof::test {

// A step takes a second, and a tenth for each token of a prompt in it; a cache is a byte a token, or what is kept.
class HandCosts : public ServingCosts {
 public:
  HandCosts() = default;
  explicit HandCosts(double bytes) : capacity(bytes) {}

  [[nodiscard]] double step_seconds(std::span<const Decoding> sequences, std::span<const PromptPart> prompts,
                                    GroupFill = {}) const override {
    double seconds = sequences.empty() ? 0 : 1;
    for (const PromptPart& part : prompts) seconds += 0.1 * (part.to - part.from);
    return seconds;
  }
  [[nodiscard]] double cache_bytes(const Decoding& s) const override {
    return std::min<double>(taken_for(s.prompt) + s.generated, kept);
  }
  [[nodiscard]] double moved_bytes(std::uint32_t prompt) const override { return std::min<double>(prompt, kept); }
  [[nodiscard]] std::uint32_t taken_for(std::uint32_t prompt) const override {
    return (prompt + profiled - 1) / profiled * profiled;
  }
  [[nodiscard]] double cache_capacity() const override { return capacity; }

  double kept = 1e9;
  double capacity = 1e9;
  std::uint32_t profiled = 1;  // lengths of prompts are taken for multiples of it
};

inline SchedulerLimits limits_of(std::uint64_t sequences, std::uint32_t step_tokens) {
  SchedulerLimits limits;
  limits.sequences = sequences;
  limits.step_tokens = step_tokens;
  return limits;
}

}  // namespace kvroof::test
