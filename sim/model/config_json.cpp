#include "sim/model/config_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/suggest.hpp"
#include "sim/model/config_fields.hpp"
#include "sim/model/config_of_shape.hpp"
#include "sim/model/config_quantised.hpp"
#include "sim/model/config_states.hpp"
#include "sim/model/config_text_part.hpp"
#include "sim/model/families.hpp"
#include "sim/model/left_modules.hpp"
#include "sim/model/python_json.hpp"

namespace kvroof {
namespace {

#define KVROOF_ENTRY(model_type, parser, ...) \
  ConfigFamily{#model_type, parse_##parser##_config __VA_OPT__(, ) __VA_ARGS__},
constexpr std::array kFamilies = {KVROOF_CONFIG_FAMILIES(KVROOF_ENTRY)};
#undef KVROOF_ENTRY
static_assert(std::is_sorted(kFamilies.begin(), kFamilies.end(),
                             [](const ConfigFamily& a, const ConfigFamily& b) { return a.model_type < b.model_type; }));

}  // namespace

float default_attention_scale(std::uint32_t head_dim) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

namespace {

Result<ModelConfig> parse_language_model(std::string_view text) {
  ConfigFields fields(text);
  const std::string type = fields.text("model_type", "");
  const auto of_type = std::ranges::find(kFamilies, type, &ConfigFamily::model_type);
  const Quantisation stored = read_quantisation(fields, of_type == kFamilies.end() ? "" : of_type->quantised);
  if (fields.failed()) return fields.failure();
  if (of_type != kFamilies.end()) {
    Result<ModelConfig> config = of_type->parse(text);
    if (!config.ok()) return config;
    ModelOptions& options = config.value().options;
    const std::string part = not_built(config.value().shape);
    if (options.cannot_run.empty() && !part.empty()) say_not_run(config.value(), part);
    options.fp8 = stored.fp8;
    options.stored = stored.stored;
    options.stored_unknown = stored.unknown;
    const LeftModules left(stored.left, stored.taken);
    if (config.value().shape.experts == 0) {
      options.stored.plain_share = left.share_of(config.value().shape);
    } else if (left.all_attention(config.value().shape.layers)) {
      options.stored.layer_bits = 16;  // routed experts alone are packed then
    }
    if (options.cannot_run.empty()) options.cannot_run = stored.cannot_run;
    return config;
  }
  std::vector<std::string> known;
  for (const ConfigFamily& family : kFamilies) known.emplace_back(family.model_type);
  if (type.empty()) return failure("model_type is missing; known: {}", join(known));
  return failure("model_type \"{}\" is not supported{}; known: {}", type, did_you_mean(type, known), join(known));
}

}  // namespace

Result<ModelConfig> parse_config_json(std::string_view as_written) {
  const std::string text = with_words_quoted(as_written);
  ConfigFields fields(text);
  if (fields.failed()) return fields.failure();
  const std::optional<std::string> part = text_part_of_config(text);
  if (!part) return parse_language_model(text);
  Result<ModelConfig> config = parse_language_model(*part);
  if (!config.ok()) return config;
  config.value().options.text_part = true;
  return config;
}

}  // namespace kvroof
