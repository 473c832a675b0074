// Keys under which names of models and boards are found, and counts, however tables of measurements spell them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvroof {

// Letters and digits in lower case: "H100-SXM 80GB" and "h100_sxm_80gb" are one.
std::string plain_letters(std::string_view text);
// Without the owner, the vendor, and endings that name a tuning or a storage: "meta-llama/Llama-3.1-8B-Instruct".
std::string model_key(std::string_view name);
// Without the vendor and a power limit: "NVIDIA A100-SXM4-80GB@330W".
std::string device_key(std::string_view name);
// Words in any order: "A100 80GB PCIe" is "A100-PCIe-80GB". They begin with a space, as no other key does.
std::string device_words(std::string_view name);
// "8x H100" is so many of one board; the number is a column of its own.
std::string one_board(const std::string& name);
// The first count in a text: "~4064", "200(default)", "mean 512 tokens", "1,024", "4k" (times 1024); "short" is a
// prompt of 32 tokens. Nothing where there is none, or one that 32 bits do not hold.
std::optional<std::uint32_t> published_count(std::string_view text);

}  // namespace kvroof
