// Values of options that several verbs read in the same way: numbers, counts with k, lists, element types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/core/kv_type.hpp"

namespace kvroof {

// Each function throws Error (usage) in one sentence with the option, the value and what is expected.

// A number from least to most; "nan" is none. `words`: ", or max", what the option takes beside numbers.
double number_value(const std::string& option, std::string_view text, double least, double most,
                    std::string_view words = "");

// Likewise of a share of a whole, which may be written in percent: 0.9 or 90%.
double share_value(const std::string& option, std::string_view text, double least, double most,
                   std::string_view words = "");

// Digits alone, from least to most.
std::uint64_t whole_value(const std::string& option, std::string_view text, std::uint64_t least, std::uint64_t most);

// A count from least to most, with an optional k (1,024) or m (1,048,576): "4k", "0.5k".
std::uint32_t count_value(const std::string& option, std::string_view text, std::uint32_t least, std::uint32_t most,
                          std::string_view words = "");

// Counts between commas.
std::vector<std::uint32_t> count_list(const std::string& option, const std::string& text, std::uint32_t least,
                                      std::uint32_t most, std::string_view words = "");

// Items between commas, each without its surrounding blanks and once; an empty item is refused.
std::vector<std::string> split_list(const std::string& option, const std::string& text);

// --kv: a name of sim/core/kv_type.hpp, or a float type in any of its spellings.
inline constexpr const char* kKvHelp =
    "KV cache as f32 | f16 | bf16 | int8 | int4 | int4g64 | kivi2 | kivi4 (default: as the weights)";
// served: as other engines store it as well (fp8), which is priced alone.
KvType kv_type_value(const std::string& text, bool served = false);

// f32, f16 or bf16 in any of their spellings; every other type is refused.
DType float_type_value(const std::string& option, const std::string& text);

}  // namespace kvroof
