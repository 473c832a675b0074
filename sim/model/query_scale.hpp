// Queries that grow with the logarithm of their position, so that attention over many tokens stays as sharp as over few
// (Scalable-Softmax, arXiv:2501.19399; Llama 4, Ministral 3 and Mistral 4).
#pragma once

#include <cmath>
#include <cstdint>

namespace kvroof {

struct QueryScale {
  float beta = 0;              // 0: queries stay as they are
  std::uint32_t original = 1;  // tokens; up to there they stay as well

  [[nodiscard]] explicit operator bool() const { return beta > 0; }
  // What q of a token is multiplied by after its rotation: 1 + beta · ln(1 + ⌊position / original⌋).
  [[nodiscard]] float at(std::uint32_t position) const {
    return 1 + beta * std::log(1 + static_cast<float>(position / original));
  }
};

}  // namespace kvroof
