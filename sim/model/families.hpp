// The parsers of config.json, one a family; config_json.cpp holds the table.
#pragma once

#include <string_view>

#include "sim/model/config_json.hpp"

namespace kvroof {

Result<ModelConfig> parse_arcee_config(std::string_view config_json);
Result<ModelConfig> parse_bamba_config(std::string_view config_json);
Result<ModelConfig> parse_bloom_config(std::string_view config_json);
Result<ModelConfig> parse_cohere_config(std::string_view config_json);
Result<ModelConfig> parse_cohere2_config(std::string_view config_json);
Result<ModelConfig> parse_cwm_config(std::string_view config_json);
Result<ModelConfig> parse_deepseek_v2_config(std::string_view config_json);
Result<ModelConfig> parse_deepseek_v3_config(std::string_view config_json);
Result<ModelConfig> parse_deepseek_v32_config(std::string_view config_json);
Result<ModelConfig> parse_deepseek_v4_config(std::string_view config_json);
Result<ModelConfig> parse_dots1_config(std::string_view config_json);
Result<ModelConfig> parse_ernie4_5_config(std::string_view config_json);
Result<ModelConfig> parse_ernie4_5_moe_config(std::string_view config_json);
Result<ModelConfig> parse_exaone_config(std::string_view config_json);
Result<ModelConfig> parse_exaone4_config(std::string_view config_json);
Result<ModelConfig> parse_exaone_moe_config(std::string_view config_json);
Result<ModelConfig> parse_falcon_config(std::string_view config_json);
Result<ModelConfig> parse_falcon_h1_config(std::string_view config_json);
Result<ModelConfig> parse_flex_olmo_config(std::string_view config_json);
Result<ModelConfig> parse_gemma_config(std::string_view config_json);
Result<ModelConfig> parse_gemma2_config(std::string_view config_json);
Result<ModelConfig> parse_gemma3_config(std::string_view config_json);
Result<ModelConfig> parse_gemma3n_config(std::string_view config_json);
Result<ModelConfig> parse_gemma4_config(std::string_view config_json);
Result<ModelConfig> parse_glm_config(std::string_view config_json);
Result<ModelConfig> parse_glm4_config(std::string_view config_json);
Result<ModelConfig> parse_glm4_moe_config(std::string_view config_json);
Result<ModelConfig> parse_glm4_moe_lite_config(std::string_view config_json);
Result<ModelConfig> parse_glm_moe_dsa_config(std::string_view config_json);
// GPT-2 and Cerebras-GPT.
Result<ModelConfig> parse_gpt2_config(std::string_view config_json);
// GPT-NeoX and Pythia.
Result<ModelConfig> parse_gpt_neox_config(std::string_view config_json);
// Also with experts in MXFP4.
Result<ModelConfig> parse_gpt_oss_config(std::string_view config_json);
Result<ModelConfig> parse_gptj_config(std::string_view config_json);
Result<ModelConfig> parse_granite_config(std::string_view config_json);
Result<ModelConfig> parse_granitemoe_config(std::string_view config_json);
Result<ModelConfig> parse_granitemoehybrid_config(std::string_view config_json);
Result<ModelConfig> parse_granitemoeshared_config(std::string_view config_json);
Result<ModelConfig> parse_helium_config(std::string_view config_json);
Result<ModelConfig> parse_hunyuan_v1_dense_config(std::string_view config_json);
Result<ModelConfig> parse_hunyuan_v1_moe_config(std::string_view config_json);
Result<ModelConfig> parse_hy_v3_config(std::string_view config_json);
Result<ModelConfig> parse_hyperclovax_config(std::string_view config_json);
Result<ModelConfig> parse_internlm3_config(std::string_view config_json);
Result<ModelConfig> parse_jamba_config(std::string_view config_json);
Result<ModelConfig> parse_kimi_linear_config(std::string_view config_json);
Result<ModelConfig> parse_lfm2_config(std::string_view config_json);
Result<ModelConfig> parse_lfm2_moe_config(std::string_view config_json);
Result<ModelConfig> parse_llama_config(std::string_view config_json);
Result<ModelConfig> parse_llama4_config(std::string_view config_json);
Result<ModelConfig> parse_longcat_flash_config(std::string_view config_json);
Result<ModelConfig> parse_mimo_v2_flash_config(std::string_view config_json);
Result<ModelConfig> parse_minimax_config(std::string_view config_json);
Result<ModelConfig> parse_minimax_m2_config(std::string_view config_json);
Result<ModelConfig> parse_ministral3_config(std::string_view config_json);
Result<ModelConfig> parse_mistral4_config(std::string_view config_json);
Result<ModelConfig> parse_mistral_config(std::string_view config_json);
Result<ModelConfig> parse_mixtral_config(std::string_view config_json);
Result<ModelConfig> parse_mpt_config(std::string_view config_json);
Result<ModelConfig> parse_nemotron_config(std::string_view config_json);
Result<ModelConfig> parse_nemotron_h_config(std::string_view config_json);
Result<ModelConfig> parse_olmo2_config(std::string_view config_json);
Result<ModelConfig> parse_olmo3_config(std::string_view config_json);
Result<ModelConfig> parse_olmo_hybrid_config(std::string_view config_json);
Result<ModelConfig> parse_olmoe_config(std::string_view config_json);
Result<ModelConfig> parse_opt_config(std::string_view config_json);
Result<ModelConfig> parse_phi_config(std::string_view config_json);
Result<ModelConfig> parse_phi3_config(std::string_view config_json);
Result<ModelConfig> parse_phimoe_config(std::string_view config_json);
Result<ModelConfig> parse_qwen2_config(std::string_view config_json);
Result<ModelConfig> parse_qwen2_moe_config(std::string_view config_json);
Result<ModelConfig> parse_qwen3_config(std::string_view config_json);
Result<ModelConfig> parse_qwen3_5_config(std::string_view config_json);
Result<ModelConfig> parse_qwen3_5_moe_config(std::string_view config_json);
Result<ModelConfig> parse_qwen3_moe_config(std::string_view config_json);
Result<ModelConfig> parse_qwen3_next_config(std::string_view config_json);
Result<ModelConfig> parse_seed_oss_config(std::string_view config_json);
Result<ModelConfig> parse_smollm3_config(std::string_view config_json);
Result<ModelConfig> parse_solar_open_config(std::string_view config_json);
Result<ModelConfig> parse_stablelm_config(std::string_view config_json);
Result<ModelConfig> parse_starcoder2_config(std::string_view config_json);
Result<ModelConfig> parse_step3p5_config(std::string_view config_json);
Result<ModelConfig> parse_youtu_config(std::string_view config_json);

}  // namespace kvroof
