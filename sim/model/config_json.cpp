#include "sim/model/config_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/suggest.hpp"
#include "sim/model/config_fields.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

constexpr std::array kFamilies = {
    ConfigFamily{"llama", parse_llama_config},
};
static_assert(std::is_sorted(kFamilies.begin(), kFamilies.end(),
                             [](const ConfigFamily& a, const ConfigFamily& b) { return a.model_type < b.model_type; }));

}  // namespace

float default_attention_scale(std::uint32_t head_dim) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

Result<ModelConfig> parse_config_json(std::string_view text) {
  ConfigFields fields(text);
  const std::string type = fields.text("model_type", "");
  if (fields.failed()) return fields.failure();
  std::vector<std::string> known;
  for (const ConfigFamily& family : kFamilies) {
    if (family.model_type == type) return family.parse(text);
    known.emplace_back(family.model_type);
  }
  if (type.empty()) return failure("model_type is missing; known: {}", join(known));
  return failure("model_type \"{}\" is not supported; known: {}{}", type, join(known), did_you_mean(type, known));
}

}  // namespace kvroof
