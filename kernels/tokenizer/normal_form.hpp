// The four normal forms of Unicode Standard Annex 15, as the reference library has them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvroof {

enum class NormalForm : std::uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// The text in a normal form of Unicode 9: characters that came later stay as they are and reorder with nothing.
// The text is valid UTF-8.
[[nodiscard]] std::string to_normal_form(std::string_view text, NormalForm form);

// Lower case, character by character (so without a final sigma).
[[nodiscard]] std::string to_lower_case(std::string_view text);

}  // namespace kvroof
