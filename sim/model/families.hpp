// The families of models by the model_type of config.json, each with its parser, parse_NAME_config.
#pragma once

#include <string_view>

#include "sim/model/config_json.hpp"

// A new family is a file with its parser and a line here: its model_type, whose order the lines have, the parser, and
// how its experts may be packed. gpt2 has Cerebras-GPT, gpt_neox Pythia; kimi_k2 names the architecture of DeepSeek-V3,
// and minimax_text_01 is in the first files of MiniMax.
#define KVROOF_CONFIG_FAMILIES(line) \
  line(arcee, arcee) \
  line(bamba, bamba) \
  line(bloom, bloom) \
  line(cohere, cohere) \
  line(cohere2, cohere2) \
  line(cwm, cwm) \
  line(deepseek_v2, deepseek_v2) \
  line(deepseek_v3, deepseek_v3) \
  line(deepseek_v32, deepseek_v32) \
  line(deepseek_v4, deepseek_v4) \
  line(dots1, dots1) \
  line(ernie4_5, ernie4_5) \
  line(ernie4_5_moe, ernie4_5_moe) \
  line(exaone, exaone) \
  line(exaone4, exaone4) \
  line(exaone_moe, exaone_moe) \
  line(falcon, falcon) \
  line(falcon_h1, falcon_h1) \
  line(flex_olmo, flex_olmo) \
  line(gemma, gemma) \
  line(gemma2, gemma2) \
  line(gemma3, gemma3) \
  line(gemma3_text, gemma3) \
  line(gemma3n, gemma3n) \
  line(gemma3n_text, gemma3n) \
  line(gemma4, gemma4) \
  line(gemma4_text, gemma4) \
  line(gemma4_unified_text, gemma4) \
  line(glm, glm) \
  line(glm4, glm4) \
  line(glm4_moe, glm4_moe) \
  line(glm4_moe_lite, glm4_moe_lite) \
  line(glm_moe_dsa, glm_moe_dsa) \
  line(gpt2, gpt2) \
  line(gpt_neox, gpt_neox) \
  line(gpt_oss, gpt_oss, "mxfp4") \
  line(gptj, gptj) \
  line(granite, granite) \
  line(granitemoe, granitemoe) \
  line(granitemoehybrid, granitemoehybrid) \
  line(granitemoeshared, granitemoeshared) \
  line(helium, helium) \
  line(hunyuan_v1_dense, hunyuan_v1_dense) \
  line(hunyuan_v1_moe, hunyuan_v1_moe) \
  line(hy_v3, hy_v3) \
  line(hyperclovax, hyperclovax) \
  line(internlm3, internlm3) \
  line(jamba, jamba) \
  line(kimi_k2, deepseek_v3) \
  line(kimi_linear, kimi_linear) \
  line(lfm2, lfm2) \
  line(lfm2_moe, lfm2_moe) \
  line(llama, llama) \
  line(llama4_text, llama4) \
  line(longcat_flash, longcat_flash) \
  line(mimo_v2_flash, mimo_v2_flash) \
  line(minimax, minimax) \
  line(minimax_m1, minimax) \
  line(minimax_m2, minimax_m2) \
  line(minimax_text_01, minimax) \
  line(ministral, mistral) \
  line(ministral3, ministral3) \
  line(mistral, mistral) \
  line(mistral4, mistral4) \
  line(mixtral, mixtral) \
  line(mpt, mpt) \
  line(nemotron, nemotron) \
  line(nemotron_h, nemotron_h) \
  line(olmo2, olmo2) \
  line(olmo3, olmo3) \
  line(olmo_hybrid, olmo_hybrid) \
  line(olmoe, olmoe) \
  line(opt, opt) \
  line(phi, phi) \
  line(phi3, phi3) \
  line(phimoe, phimoe) \
  line(qwen2, qwen2) \
  line(qwen2_moe, qwen2_moe) \
  line(qwen3, qwen3) \
  line(qwen3_5_moe_text, qwen3_5_moe) \
  line(qwen3_5_text, qwen3_5) \
  line(qwen3_moe, qwen3_moe) \
  line(qwen3_next, qwen3_next) \
  line(seed_oss, seed_oss) \
  line(smollm3, smollm3) \
  line(solar_open, solar_open) \
  line(stablelm, stablelm) \
  line(starcoder2, starcoder2) \
  line(step3p5, step3p5) \
  line(youtu, youtu)

namespace kvroof {

#define KVROOF_DECLARE(model_type, parser, ...) \
  Result<ModelConfig> parse_##parser##_config(std::string_view config_json);
KVROOF_CONFIG_FAMILIES(KVROOF_DECLARE)
#undef KVROOF_DECLARE

}  // namespace kvroof
