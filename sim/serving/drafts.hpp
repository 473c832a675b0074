// How many drafted tokens of a step stay, drawn: the same in every run, at every rate and for every number of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "sim/core/philox.hpp"

namespace kvroof {

// Tokens that a scheduler's step drafts for each sequence.
struct Drafts {
  std::uint32_t tokens = 0;  // 0: none
  double acceptance = 0;     // chance that one stays, those before it having stayed
  std::uint64_t seed = 0;

  // Tokens by which a request's answer is longer after its step of that number: 1 to tokens + 1. One draw decides it,
  // because k drafted tokens and more stay with the chance acceptance^k.
  [[nodiscard]] std::uint32_t made(std::uint64_t request, std::uint32_t step) const {
    if (tokens == 0 || acceptance <= 0) return 1;
    if (acceptance >= 1) return tokens + 1;
    const auto low = static_cast<std::uint32_t>(request), high = static_cast<std::uint32_t>(request >> 32);
    const Philox4 drawn = philox4x32_10(Philox4{{low, high, step, kDrafts}}, seed);
    const double stay = std::floor(std::log(double{uniform_open(drawn.x[0])}) / std::log(acceptance));
    return 1 + static_cast<std::uint32_t>(std::min<double>(stay, tokens));
  }

 private:
  static constexpr std::uint32_t kDrafts = 0xD4AF7;  // draws of other kinds have other numbers here
};

}  // namespace kvroof
