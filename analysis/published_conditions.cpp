#include "analysis/published_conditions.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>

#include "sim/core/text.hpp"

namespace kvroof {
namespace {

// In small letters, with blanks between words.
std::string plain_words(std::string_view text) {
  std::string words = lower_case(text);
  std::replace_if(words.begin(), words.end(), [](char c) { return c == '_' || c == '-'; }, ' ');
  return words;
}

}  // namespace

std::optional<double> rate_of(std::string_view text) {
  for (const std::string_view unit : {"req/s", "requests/s", "rps", "qps", "QPS"}) {
    std::size_t end = text.find(unit);
    if (end == std::string_view::npos) continue;
    while (end > 0 && text[end - 1] == ' ') --end;
    std::size_t begin = end;
    while (begin > 0 && (std::isdigit(static_cast<unsigned char>(text[begin - 1])) != 0 || text[begin - 1] == '.')) {
      --begin;
    }
    double value = 0;
    const auto [at, error] = std::from_chars(text.data() + begin, text.data() + end, value);
    if (error == std::errc() && value > 0) return value;
  }
  return std::nullopt;
}

bool by_top_p(const std::string& conditions) {
  for (const char* name : {"top_p", "top-p"}) {
    const std::size_t at = conditions.find(name);
    if (at == std::string::npos) continue;
    const std::size_t number = conditions.find_first_not_of(" =:", at + 5);
    return number == std::string::npos || conditions[number] != '1';
  }
  return false;
}

bool by_attention_groups(const std::string& conditions) {
  const std::string text = plain_words(conditions);
  constexpr std::array kSaid = {"attention data parallel", "attention dp", "dp attention"};
  return std::ranges::any_of(kSaid, [&](const char* said) { return text.find(said) != std::string::npos; });
}

bool without_graphs(const std::string& conditions) {
  const std::string text = plain_words(conditions);
  constexpr std::array kOff = {"enforce eager", "eager mode",         "cuda graph off",    "graphs off",
                               "no cuda graph", "without cuda graph", "disable cuda graph", "without graphs"};
  return std::any_of(kOff.begin(), kOff.end(), [&](const std::string off) {
    const std::size_t at = text.find(off);
    if (at == std::string::npos) return false;
    const std::string_view after = std::string_view(text).substr(at + off.size());
    // --enforce-eager=False and --disable-cuda-graph-padding leave them on.
    return !after.starts_with("=false") && !after.starts_with(" false") && !after.starts_with(" padding");
  });
}

bool equal_lengths(const std::string& conditions, std::uint32_t input, std::uint32_t output) {
  constexpr std::uint32_t kShort = 1024, kLong = 8192;
  if (std::min(input, output) == kShort && (std::max(input, output) == kShort || std::max(input, output) == kLong)) {
    return false;
  }
  if (mean_share(conditions) != 1) return false;
  const std::string text = lower_case(conditions);
  constexpr std::array kDrawn = {"range",    "uniform", "vary",    "varied", "random lengths",
                                 "sharegpt", "sonnet",  "dataset", "arena",  "gpqa"};
  return std::none_of(kDrawn.begin(), kDrawn.end(),
                      [&](const char* drawn) { return text.find(drawn) != std::string::npos; });
}

double mean_share(const std::string& conditions) {
  const std::size_t at = conditions.find("lengths ");
  double low = 1, high = 1;
  int end = 0;
  if (at == std::string::npos) return 1;
  const bool read = std::sscanf(conditions.c_str() + at, "lengths %lf to %lf of the%n", &low, &high, &end) == 2;
  return read && end > 0 && low > 0 && low <= high && high <= 1 ? (low + high) / 2 : 1;
}

}  // namespace kvroof
