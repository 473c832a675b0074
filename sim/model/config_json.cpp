#include "sim/model/config_json.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/core/suggest.hpp"
#include "sim/model/config_fields.hpp"
#include "sim/model/config_quantised.hpp"
#include "sim/model/config_text_part.hpp"
#include "sim/model/families.hpp"
#include "sim/model/left_modules.hpp"
#include "sim/model/python_json.hpp"

namespace kvroof {
namespace {

constexpr std::array kFamilies = {
    ConfigFamily{"arcee", parse_arcee_config},
    ConfigFamily{"bamba", parse_bamba_config},
    ConfigFamily{"bloom", parse_bloom_config},
    ConfigFamily{"cohere", parse_cohere_config},
    ConfigFamily{"cohere2", parse_cohere2_config},
    ConfigFamily{"cwm", parse_cwm_config},
    ConfigFamily{"deepseek_v2", parse_deepseek_v2_config},
    ConfigFamily{"deepseek_v3", parse_deepseek_v3_config},
    ConfigFamily{"deepseek_v32", parse_deepseek_v32_config},
    ConfigFamily{"deepseek_v4", parse_deepseek_v4_config},
    ConfigFamily{"dots1", parse_dots1_config},
    ConfigFamily{"ernie4_5", parse_ernie4_5_config},
    ConfigFamily{"ernie4_5_moe", parse_ernie4_5_moe_config},
    ConfigFamily{"exaone", parse_exaone_config},
    ConfigFamily{"exaone4", parse_exaone4_config},
    ConfigFamily{"exaone_moe", parse_exaone_moe_config},
    ConfigFamily{"falcon", parse_falcon_config},
    ConfigFamily{"falcon_h1", parse_falcon_h1_config},
    ConfigFamily{"flex_olmo", parse_flex_olmo_config},
    ConfigFamily{"gemma", parse_gemma_config},
    ConfigFamily{"gemma2", parse_gemma2_config},
    ConfigFamily{"gemma3", parse_gemma3_config},
    ConfigFamily{"gemma3_text", parse_gemma3_config},
    ConfigFamily{"gemma3n", parse_gemma3n_config},
    ConfigFamily{"gemma3n_text", parse_gemma3n_config},
    ConfigFamily{"gemma4", parse_gemma4_config},
    ConfigFamily{"gemma4_text", parse_gemma4_config},
    ConfigFamily{"gemma4_unified_text", parse_gemma4_config},
    ConfigFamily{"glm", parse_glm_config},
    ConfigFamily{"glm4", parse_glm4_config},
    ConfigFamily{"glm4_moe", parse_glm4_moe_config},
    ConfigFamily{"glm4_moe_lite", parse_glm4_moe_lite_config},
    ConfigFamily{"glm_moe_dsa", parse_glm_moe_dsa_config},
    ConfigFamily{"gpt2", parse_gpt2_config},
    ConfigFamily{"gpt_neox", parse_gpt_neox_config},
    ConfigFamily{"gpt_oss", parse_gpt_oss_config, "mxfp4"},
    ConfigFamily{"gptj", parse_gptj_config},
    ConfigFamily{"granite", parse_granite_config},
    ConfigFamily{"granitemoe", parse_granitemoe_config},
    ConfigFamily{"granitemoehybrid", parse_granitemoehybrid_config},
    ConfigFamily{"granitemoeshared", parse_granitemoeshared_config},
    ConfigFamily{"helium", parse_helium_config},
    ConfigFamily{"hunyuan_v1_dense", parse_hunyuan_v1_dense_config},
    ConfigFamily{"hunyuan_v1_moe", parse_hunyuan_v1_moe_config},
    ConfigFamily{"hy_v3", parse_hy_v3_config},
    ConfigFamily{"hyperclovax", parse_hyperclovax_config},
    ConfigFamily{"internlm3", parse_internlm3_config},
    ConfigFamily{"jamba", parse_jamba_config},
    ConfigFamily{"kimi_k2", parse_deepseek_v3_config},  // whose architecture it names
    ConfigFamily{"kimi_linear", parse_kimi_linear_config},
    ConfigFamily{"lfm2", parse_lfm2_config},
    ConfigFamily{"lfm2_moe", parse_lfm2_moe_config},
    ConfigFamily{"llama", parse_llama_config},
    ConfigFamily{"llama4_text", parse_llama4_config},
    ConfigFamily{"longcat_flash", parse_longcat_flash_config},
    ConfigFamily{"mimo_v2_flash", parse_mimo_v2_flash_config},
    ConfigFamily{"minimax", parse_minimax_config},
    ConfigFamily{"minimax_m1", parse_minimax_config},
    ConfigFamily{"minimax_m2", parse_minimax_m2_config},
    ConfigFamily{"minimax_text_01", parse_minimax_config},  // its first files
    ConfigFamily{"ministral", parse_mistral_config},
    ConfigFamily{"ministral3", parse_ministral3_config},
    ConfigFamily{"mistral", parse_mistral_config},
    ConfigFamily{"mistral4", parse_mistral4_config},
    ConfigFamily{"mixtral", parse_mixtral_config},
    ConfigFamily{"mpt", parse_mpt_config},
    ConfigFamily{"nemotron", parse_nemotron_config},
    ConfigFamily{"nemotron_h", parse_nemotron_h_config},
    ConfigFamily{"olmo2", parse_olmo2_config},
    ConfigFamily{"olmo3", parse_olmo3_config},
    ConfigFamily{"olmo_hybrid", parse_olmo_hybrid_config},
    ConfigFamily{"olmoe", parse_olmoe_config},
    ConfigFamily{"opt", parse_opt_config},
    ConfigFamily{"phi", parse_phi_config},
    ConfigFamily{"phi3", parse_phi3_config},
    ConfigFamily{"phimoe", parse_phimoe_config},
    ConfigFamily{"qwen2", parse_qwen2_config},
    ConfigFamily{"qwen2_moe", parse_qwen2_moe_config},
    ConfigFamily{"qwen3", parse_qwen3_config},
    ConfigFamily{"qwen3_5_moe_text", parse_qwen3_5_moe_config},
    ConfigFamily{"qwen3_5_text", parse_qwen3_5_config},
    ConfigFamily{"qwen3_moe", parse_qwen3_moe_config},
    ConfigFamily{"qwen3_next", parse_qwen3_next_config},
    ConfigFamily{"seed_oss", parse_seed_oss_config},
    ConfigFamily{"smollm3", parse_smollm3_config},
    ConfigFamily{"solar_open", parse_solar_open_config},
    ConfigFamily{"stablelm", parse_stablelm_config},
    ConfigFamily{"starcoder2", parse_starcoder2_config},
    ConfigFamily{"step3p5", parse_step3p5_config},
    ConfigFamily{"youtu", parse_youtu_config},
};
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
  return failure("model_type \"{}\" is not supported; known: {}{}", type, join(known), did_you_mean(type, known));
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
