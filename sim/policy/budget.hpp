// Budget: how many slots a storage head may hold, and relative to what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/core/error.hpp"

namespace kvroof {

struct Budget {
  enum class Kind : std::uint8_t {
    kUnlimited,          // full
    kFractionOfPrompt,   // "0.5" or "50%": floor(value · prompt), at least 1; static while decoding
    kTokens,             // "512", "4k" (4096)
    kFractionOfCurrent,  // "0.5@current": floor(value · tokens so far), at least 1
    kCompression,        // compression=r: int(prompt · (1 − r)) in double precision, at least 1 (kvpress)
  };
  Kind kind = Kind::kUnlimited;
  double value = 0;
  std::string text = "unlimited";  // as the user wrote it; a compression with its key

  // Slots a head may hold after a step that ended with `current` tokens seen (prompt included).
  [[nodiscard]] std::uint32_t tokens(std::uint32_t prompt, std::uint32_t current) const;
  // One phrase for the output: "50 % of the prompt", "512 tokens", …
  [[nodiscard]] std::string describe() const;
  friend bool operator==(const Budget&, const Budget&) = default;
};

// With a decimal point or `%`: a fraction in (0, 1]; without: a count ≥ 1, with `k` of 1024 each. Refuses 0, negatives,
// text, fractions above 1.
Result<Budget> parse_budget(std::string_view text);
Result<Budget> parse_compression(std::string_view text);

}  // namespace kvroof
