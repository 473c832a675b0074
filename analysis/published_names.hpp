// Counts, however tables of measurements spell them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvroof {

// "8x H100" is so many of one board; the number is a column of its own.
std::string one_board(const std::string& name);
// The first count in a text: "~4064", "200(default)", "mean 512 tokens", "1,024", "4k" (times 1024); "short" is a
// prompt of 32 tokens. Nothing where there is none, or one that 32 bits do not hold.
std::optional<std::uint32_t> published_count(std::string_view text);

}  // namespace kvroof
