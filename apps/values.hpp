// Values of options that several verbs read in the same way: counts with k, lists, element types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/dtype.hpp"

namespace kvroof {

// A count from least to most, with an optional k (1,024): "4k". Throws Error (usage) that names the option.
std::uint32_t count_value(const std::string& option, std::string_view text, std::uint32_t least, std::uint32_t most);

// Items between commas, each with its surrounding blanks removed; throws Error (usage) for an empty item.
std::vector<std::string> split_list(const std::string& option, const std::string& text);

// Counts between commas.
std::vector<std::uint32_t> count_list(const std::string& option, const std::string& text, std::uint32_t least,
                                      std::uint32_t most);

// f32, f16 or bf16 in any of their spellings; throws Error (usage) for every other type.
DType float_type_value(const std::string& option, const std::string& text);

}  // namespace kvroof
