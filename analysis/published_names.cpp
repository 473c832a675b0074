#include "analysis/published_names.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <vector>

namespace kvroof {
namespace {

constexpr std::uint32_t kShortPrompt = 32;

// Endings that name a tuning or a storage of the same shape, in plain letters.
constexpr std::string_view kEndings[] = {
    "instruct", "chat", "hf",   "it",    "base",  "fp8",   "bf16", "nvfp4",     "mxfp4", "fp4",  "awq",  "gptq",
    "v01",      "v02",  "v03",  "v15",   "fp16",  "int4",  "int8", "f16",       "w4a16", "w8a8", "w8a16", "kv",
    "dynamic",  "gguf", "pt",   "q40",   "q80",   "q4km",  "q6k",  "q4kmedium", "q5km",  "mostly", "quantized",
    "2407",     "2409", "2410", "2411",  "2412",  "2501",  "2503", "2506",      "2507"};
constexpr std::array<std::string_view, 6> kVendors = {"nvidia", "geforce", "amd", "instinct", "intel", "meta"};

std::string without_ending(std::string text) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view ending : kEndings) {
      if (text.size() <= ending.size() || !text.ends_with(ending)) continue;
      text.resize(text.size() - ending.size());
      again = true;
    }
  }
  return text;
}

std::string without_vendor(std::string text) {
  for (const std::string_view vendor : kVendors) {
    if (text.starts_with(vendor)) text.erase(0, vendor.size());
  }
  return text;
}

}  // namespace

std::string plain_letters(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return plain;
}

std::string model_key(std::string_view name) {
  const std::size_t owner = name.rfind('/');  // meta-llama/Llama-3.1-8B
  if (owner != std::string_view::npos) name.remove_prefix(owner + 1);
  return without_ending(without_vendor(plain_letters(name)));
}

std::string device_key(std::string_view name) {
  const std::size_t limit = name.find('@');  // A100-SXM4-80GB@330W
  return without_vendor(plain_letters(name.substr(0, limit)));
}

std::string one_board(const std::string& name) {
  const std::size_t digits = name.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos) return name;
  const std::size_t times = name.find_first_not_of(' ', digits);
  const bool many = times != std::string::npos && (name[times] == 'x' || name[times] == 'X');
  return many ? name.substr(std::min(name.find_first_not_of(' ', times + 1), name.size())) : name;
}

std::string device_words(std::string_view name) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : std::string(name.substr(0, name.find('@'))) + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      word = without_vendor(std::move(word));
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    }
  }
  std::sort(words.begin(), words.end());
  std::string key;
  for (const std::string& w : words) key += " " + w;
  return key;
}

std::optional<std::uint32_t> published_count(std::string_view text) {
  constexpr std::uint64_t kMostCount = std::numeric_limits<std::uint32_t>::max();
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto at = std::find_if(text.begin(), text.end(), digit);
  if (at == text.end()) return text.starts_with("short") ? std::optional(kShortPrompt) : std::nullopt;
  const char* const stop = text.data() + text.size();
  std::uint64_t value = 0;
  auto [end, error] = std::from_chars(&*at, stop, value);
  if (error != std::errc()) return std::nullopt;
  // 1,024: groups of three digits.
  const auto group_follows = [&] {
    if (stop - end < 4 || *end != ',' || !std::all_of(end + 1, end + 4, digit)) return false;
    return stop - end == 4 || !digit(end[4]);
  };
  while (value <= kMostCount && group_follows()) {
    for (int i = 1; i < 4; ++i) value = 10 * value + static_cast<std::uint64_t>(end[i] - '0');
    end += 4;
  }
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  const bool thousands = end != stop && (*end == 'k' || *end == 'K') && (end + 1 == stop || !letter(end[1]));
  if (value > kMostCount) return std::nullopt;
  if (thousands) value *= 1024;
  return value <= kMostCount ? std::optional(static_cast<std::uint32_t>(value)) : std::nullopt;
}

}  // namespace kvroof
