// What is said where a model makes of its tokens no probabilities.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "sim/core/counted.hpp"
#include "sim/core/error.hpp"

namespace kvroof {

// Throws Error where the log-probability that follows from the logits after so many tokens of a sequence is not finite.
inline void require_finite(float logprob, std::uint32_t sequence, std::size_t tokens) {
  if (std::isfinite(logprob)) return;
  throw Error(fmt::format("sequence {}: the logits after {} are not finite numbers", sequence,
                          counted(tokens, "token")))
      .note("half precision can overflow; `--dtype f32 --kv f32` shows whether that is the cause");
}

}  // namespace kvroof
