#include "apps/values.hpp"

#include <charconv>

#include "sim/core/error.hpp"

namespace kvroof {

std::uint32_t count_value(const std::string& option, std::string_view text, std::uint32_t least, std::uint32_t most) {
  std::string_view digits = text;
  std::uint64_t unit = 1;
  if (digits.ends_with('k') || digits.ends_with('K')) {
    unit = 1024;
    digits.remove_suffix(1);
  }
  std::uint32_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || error != std::errc() || stop != end || value * unit < least || value * unit > most) {
    throw usage_error(fmt::format("--{} {}: expected a count from {} to {}", option, text, least, most));
  }
  return static_cast<std::uint32_t>(value * unit);
}

std::vector<std::string> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, end - begin);
    const std::size_t first = item.find_first_not_of(" \t");
    if (first == std::string::npos)
      throw usage_error(fmt::format("--{} '{}': an item of the list is empty", option, text));
    items.push_back(item.substr(first, item.find_last_not_of(" \t") - first + 1));
    begin = end + 1;
  }
  return items;
}

std::vector<std::uint32_t> count_list(const std::string& option, const std::string& text, std::uint32_t least,
                                      std::uint32_t most) {
  std::vector<std::uint32_t> counts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    counts.push_back(count_value(option, std::string_view(text).substr(begin, end - begin), least, most));
    begin = end + 1;
  }
  return counts;
}

DType float_type_value(const std::string& option, const std::string& text) {
  const auto type = parse_dtype(text);
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) return *type;
  throw usage_error(fmt::format("--{} {}: expected f32, f16 or bf16", option, text));
}

}  // namespace kvroof
