// MiniMax-M2's config.json.
#include "sim/model/config_json.hpp"
#include "tests/catch.hpp"

namespace kvroof {
namespace {

// config.json of MiniMaxAI/MiniMax-M2: what concerns the arithmetic.
const std::string kPublished =
    R"({"architectures":["MiniMaxM2ForCausalLM"],"attn_type_list":[1,1],"head_dim":128,"hidden_act":"silu",)"
    R"("hidden_size":3072,"intermediate_size":1536,"max_position_embeddings":196608,"model_type":"minimax_m2",)"
    R"("mtp_transformer_layers":1,"num_attention_heads":48,"num_experts_per_tok":8,"num_hidden_layers":62,)"
    R"("num_key_value_heads":8,"num_local_experts":256,"num_mtp_modules":3,"qk_norm_type":"per_layer",)"
    R"("quantization_config":{"activation_scheme":"dynamic","fmt":"float8_e4m3fn","quant_method":"fp8",)"
    R"("weight_block_size":[128,128],"modules_to_not_convert":["gate","e_score_correction_bias","lm_head"]},)"
    R"("rms_norm_eps":1e-06,"rope_theta":5000000,"rotary_dim":64,"scoring_func":"sigmoid",)"
    R"("shared_intermediate_size":0,"tie_word_embeddings":false,"use_mtp":true,"use_qk_norm":true,)"
    R"("use_routing_bias":true,"vocab_size":200064)";

TEST_CASE("MiniMax-M2 has the parameters of its page, ten billion of them for a token, and turns half a head") {
  const ModelConfig config = parse_config_json(kPublished + "}").or_throw("config.json");
  CHECK(static_cast<double>(parameter_count(config.shape)) / 1e9 == Approx(228.7).epsilon(1e-3));  // 230 with drafts
  CHECK(static_cast<double>(active_parameters(config.shape)) / 1e9 == Approx(10).epsilon(0.05));
  CHECK(config.shape.qk_norm == QkNorm::kWhole);
  CHECK(config.options.rotary[0].dims == 64);
  CHECK(config.options.rotary[0].theta == 5e6);
  CHECK(config.options.fp8.block_rows == 128);
  CHECK(config.options.routing.renormalise);
}

TEST_CASE("a MiniMax-M2 that would be computed otherwise is refused") {
  const auto refused = [](const std::string& key, const std::string& from, const std::string& to) {
    std::string text = kPublished + "}";
    text.replace(text.find(from), from.size(), to);
    const Result<ModelConfig> config = parse_config_json(text);
    return !config.ok() && config.error().find(key) != std::string::npos;
  };
  CHECK(refused("qk_norm_type", R"("per_layer")", R"("per_head")"));
  CHECK(refused("use_qk_norm", R"("use_qk_norm":true)", R"("use_qk_norm":false)"));
  CHECK(refused("use_routing_bias", R"("use_routing_bias":true)", R"("use_routing_bias":false)"));
  CHECK(refused("scoring_func", R"("sigmoid")", R"("softmax")"));
  CHECK(refused("shared_intermediate_size", R"("shared_intermediate_size":0)", R"("shared_intermediate_size":512)"));
}

}  // namespace
}  // namespace kvroof
