#include "sim/policy/budget.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "sim/core/text.hpp"

namespace kvroof {
namespace {

// 0.29 · 100 is 28.999999999999996 in binary; the decimal that was written means 29.
constexpr double kDecimalSlack = 1e-9;

std::uint32_t share_of(double fraction, std::uint32_t tokens) {
  return std::max(1U, static_cast<std::uint32_t>(std::floor(fraction * tokens + kDecimalSlack)));
}

// A budget's text names its row in tables and messages, which show it whole.
std::optional<double> parse_short_decimal(std::string_view text) {
  constexpr std::size_t kMostDigits = 30;
  return text.size() <= kMostDigits ? parse_decimal(text) : std::nullopt;
}

Failure not_a_budget(std::string_view text) {
  return failure(
      "`{}` is no budget: a fraction in (0, 1] such as 0.5 or 50%, a number of tokens ≥ 1 such as 512 or 4k (4096), "
      "or 0.5@current",
      shown(text));
}

Result<Budget> count_budget(std::string_view text, double value) {
  if (value < 1) return failure("`{}`: a budget of 0 tokens keeps nothing; the least is 1", text);
  if (value > std::numeric_limits<std::int32_t>::max())
    return failure("`{}`: more tokens than any context holds", text);
  return Budget{Budget::Kind::kTokens, value, std::string(text)};
}

}  // namespace

std::uint32_t Budget::tokens(std::uint32_t prompt, std::uint32_t current) const {
  switch (kind) {
    case Kind::kFractionOfPrompt: return share_of(value, prompt);
    case Kind::kTokens: return static_cast<std::uint32_t>(value);
    case Kind::kFractionOfCurrent: return share_of(value, current);
    case Kind::kCompression: return std::max(1U, static_cast<std::uint32_t>(prompt * (1 - value)));
    case Kind::kUnlimited: break;
  }
  return std::numeric_limits<std::uint32_t>::max();
}

std::string Budget::describe() const {
  // Twelve digits hide that 0.07 · 100 is 7.000000000000001.
  switch (kind) {
    case Kind::kFractionOfPrompt: return fmt::format("{:.12g} % of the prompt", 100 * value);
    case Kind::kTokens: return fmt::format("{:.0f} {}", value, value == 1 ? "token" : "tokens");
    case Kind::kFractionOfCurrent: return fmt::format("{:.12g} % of the current length", 100 * value);
    case Kind::kCompression: return fmt::format("the prompt less {:.12g} %", 100 * value);
    case Kind::kUnlimited: break;
  }
  return "unlimited";
}

Result<Budget> parse_budget(std::string_view text) {
  if (text.starts_with('-')) return failure("`{}`: a budget is positive", shown(text));
  std::string_view number = text;
  const bool current = number.ends_with("@current");
  if (current) number.remove_suffix(8);
  const bool percent = number.ends_with('%');
  if (percent) number.remove_suffix(1);
  // "1k" is 1024 tokens, as in other options that count tokens.
  const bool thousands = number.ends_with('k') || number.ends_with('K');
  if (thousands) number.remove_suffix(1);
  const auto value = parse_short_decimal(number);
  if (!value) return not_a_budget(text);
  const bool fraction = percent || number.find('.') != std::string_view::npos;
  if (thousands && (fraction || current)) return not_a_budget(text);
  if (!fraction) {
    if (current)
      return failure("`{}`: relative to the current length a budget is a fraction, such as 0.5@current", text);
    return count_budget(text, thousands ? 1024 * *value : *value);
  }
  const double share = percent ? *value / 100 : *value;
  if (share <= 0) return failure("`{}`: a budget of 0 keeps nothing", text);
  if (share > 1) {
    return failure("`{}`: a fraction is at most 1 (100%); for tokens write a whole number without a decimal point",
                   text);
  }
  const auto kind = current ? Budget::Kind::kFractionOfCurrent : Budget::Kind::kFractionOfPrompt;
  return Budget{kind, share, std::string(text)};
}

Result<Budget> parse_compression(std::string_view text) {
  const auto value = parse_short_decimal(text);
  if (!value || *value >= 1) {
    return failure("`{}` is no compression: the share of the prompt to drop, at least 0 and below 1", shown(text));
  }
  return Budget{Budget::Kind::kCompression, *value, fmt::format("compression={}", text)};
}

}  // namespace kvroof
