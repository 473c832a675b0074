#include "apps/cli/values.hpp"

#include <algorithm>
#include <optional>

#include "sim/core/error.hpp"
#include "sim/core/suggest.hpp"
#include "sim/core/text.hpp"

namespace kvroof {
namespace {

// What a message shows of an option's value.
std::string_view given(std::string_view text) { return text.empty() ? "''" : shown(text); }

// What the number of an option counts; empty: nothing that people write behind it.
std::string_view unit_of(std::string_view option) {
  if (option == "gib" || option == "host-cache" || option == "prefix-cache") return "GiB";
  if (option == "rate") return "requests a second";
  if (option == "usd-per-hour") return "US dollars an hour";
  if (option.ends_with("-gbs")) return "GB/s";
  return option.ends_with("-ms") ? "milliseconds" : "";
}

// "; it is in GiB, without a unit behind it", where a text is more than a number.
std::string unit_advice(std::string_view option, std::string_view text) {
  const std::string_view unit = unit_of(option);
  const bool has_number = text.find_first_of("0123456789") != std::string_view::npos;
  return unit.empty() || !has_number ? std::string() : fmt::format("; it is in {}, and written without a unit", unit);
}

}  // namespace

double number_value(const std::string& option, std::string_view text, double least, double most,
                    std::string_view words) {
  const auto value = parse_number<double>(text);
  if (!value || !(*value >= least && *value <= most)) {
    throw usage_error(fmt::format("--{} {}: expected a number from {} to {}{}{}", option, given(text), least, most,
                                  words, value ? std::string() : unit_advice(option, text)));
  }
  return *value;
}

double share_value(const std::string& option, std::string_view text, double least, double most,
                   std::string_view words) {
  const bool percent = text.ends_with('%');
  const auto number = parse_number<double>(text.substr(0, text.size() - (percent ? 1 : 0)));
  const double share = number.value_or(-1) / (percent ? 100 : 1);
  if (!(share >= least && share <= most)) {
    throw usage_error(fmt::format("--{} {}: expected a number from {} to {}{}; 0.9 may be written 90%", option,
                                  given(text), least, most, words));
  }
  return share;
}

std::uint64_t whole_value(const std::string& option, std::string_view text, std::uint64_t least, std::uint64_t most) {
  const auto value = parse_number<std::uint64_t>(text);
  if (!value || *value < least || *value > most) {
    throw usage_error(fmt::format("--{} {}: expected a whole number from {} to {}", option, given(text), least, most));
  }
  return *value;
}

std::uint32_t count_value(const std::string& option, std::string_view text, std::uint32_t least, std::uint32_t most,
                          std::string_view words) {
  const auto count = parse_count(text);
  if (!count || *count < least || *count > most) {
    throw usage_error(
        fmt::format("--{} {}: expected {}a count from {} to {}{}; 4k is 4096, and 1m 1048576", option, shown(text),
                    text.find(',') == std::string_view::npos ? "" : "no list here but ", least, most, words));
  }
  return static_cast<std::uint32_t>(*count);
}

std::vector<std::uint32_t> count_list(const std::string& option, const std::string& text, std::uint32_t least,
                                      std::uint32_t most, std::string_view words) {
  std::vector<std::uint32_t> counts;
  for (const std::string& item : split_list(option, text)) {
    counts.push_back(count_value(option, item, least, most, words));
  }
  return counts;
}

std::vector<std::string> split_list(const std::string& option, const std::string& text) {
  std::vector<std::string> items;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view item = trimmed(part);
    if (item.empty()) {
      throw usage_error(fmt::format("--{} '{}': an item of the list is empty", option, shown(text)));
    }
    if (std::find(items.begin(), items.end(), item) == items.end()) items.emplace_back(item);
  }
  return items;
}

KvType kv_type_value(const std::string& text, bool served) {
  if (served && text == name_of(KvType::kFp8)) return KvType::kFp8;
  const auto type = parse_kv_type(text);
  if (type) return *type;
  std::vector<std::string> known;
  for (const auto kind : {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8, KvType::kInt4, KvType::kInt4G64,
                          KvType::kKivi2, KvType::kKivi4}) {
    known.emplace_back(name_of(kind));
  }
  if (served) known.emplace_back(name_of(KvType::kFp8));
  throw usage_error(fmt::format("--kv {}: expected {}{}", given(text), join(known, ", "), did_you_mean(text, known)));
}

DType float_type_value(const std::string& option, const std::string& text) {
  const auto type = parse_dtype(text);
  if (type == DType::kF32 || type == DType::kF16 || type == DType::kBF16) return *type;
  throw usage_error(fmt::format("--{} {}: expected f32, f16 or bf16", option, given(text)));
}

}  // namespace kvroof
