#include "sim/policy/head_values.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "sim/core/text.hpp"

namespace kvroof {
namespace {

constexpr std::string_view kBetween = " \t,\r";

std::optional<float> number_of(std::string_view word) {
  const auto number = parse_number<double>(word);  // gates may be smaller than a float can say
  if (!number || !std::isfinite(static_cast<float>(*number)) || *number < 0) return std::nullopt;
  return static_cast<float>(*number);
}

Result<std::vector<float>> parse_line(std::string_view line) {
  std::vector<float> values;
  for (std::size_t at = line.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBetween, at), line.size());
    const std::string_view word = line.substr(at, end - at);
    const auto value = number_of(word);
    if (!value) return failure("`{}` is no number of a head: expected one that is 0 or more", shown(word));
    values.push_back(*value);
    at = line.find_first_not_of(kBetween, end);
  }
  return values;
}

}  // namespace

Result<std::vector<std::vector<float>>> parse_head_values(std::string_view text) {
  std::vector<std::vector<float>> layers;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.starts_with('#')) continue;
    auto values = parse_line(line);
    if (!values) return failure("line {}: {}", number, values.error());
    if (values.value().empty()) continue;
    if (!layers.empty() && values.value().size() != layers.front().size()) {
      return failure("line {} has {} numbers, the first line {}; expected one for each KV head", number,
                     values.value().size(), layers.front().size());
    }
    layers.push_back(std::move(values).value());
  }
  if (layers.empty()) return failure("no numbers; expected a line for each layer with one for each KV head");
  return layers;
}

std::span<const float> head_values(const PolicySpec& spec, const PolicyContext& context) {
  const auto file = spec.find("heads");
  if (!file || *file == "none") return {};
  const auto& layers = spec.head_values;
  if (layers.empty()) throw usage_error(fmt::format("policy {}: heads={} was not read", spec.name, *file));
  if (layers.size() != context.layers || layers.front().size() != context.storage_heads) {
    throw usage_error(fmt::format("policy {}: heads={} has {} layers of {} heads, the model {} of {}", spec.name, *file,
                                  layers.size(), layers.front().size(), context.layers, context.storage_heads));
  }
  return layers[context.layer.value];
}

bool names_heads(const PolicySpec& spec) {
  return policy_info(spec.name).traits(spec).tells_heads_apart || spec.find("heads").value_or("none") != "none";
}

}  // namespace kvroof
