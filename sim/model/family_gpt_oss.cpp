// gpt-oss: attention with biases and a sink for each query head, a window on the even layers; experts with clamped
// gates, whose router has biases and weighs the chosen ones among themselves.
#include "sim/model/clamped_swiglu.hpp"
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {
namespace {

void expect_number(ConfigFields& fields, std::string_view key, float expected) {
  if (static_cast<float>(fields.positive(key, static_cast<double>(expected))) == expected) return;
  fields.refuse(key, fmt::format("only {} is supported", expected));
}

}  // namespace

Result<ModelConfig> parse_gpt_oss_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "head_dim": 64,
                      "num_key_value_heads": 8, "attention_bias": true, "sliding_window": 128,
                      "num_experts_per_tok": 4, "norm_topk_prob": true,
                      "dtype": "bfloat16", "bos_token_id": null, "eos_token_id": null})");
  if (!fields.has("rope_parameters") && !fields.has("rope_scaling")) {
    fields.defaults(R"({"rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                         "truncate": false, "original_max_position_embeddings": 4096}})");
  }
  ModelConfig config = read_decoder(fields, {.family = "gpt_oss"});
  fields.only("hidden_act", {"silu"}, "but in gpt-oss is only supported as");
  expect_number(fields, "swiglu_alpha", kSwigluSlope);
  expect_number(fields, "swiglu_limit", kSwigluLimit);
  config.options.activation = Activation::kClampedSwiglu;
  config.options.mxfp4_experts = fields.text("quantization_config.quant_method", "") == "mxfp4";
  config.shape.mlp_bias = true;
  config.shape.router_logit_bias = true;
  config.shape.attention_sinks = true;
  for (const char* size : {"hidden_size", "intermediate_size"}) {
    if (config.options.mxfp4_experts && fields.size(size) % 32 != 0) {
      fields.fail(fmt::format("{} is {}, but 32 numbers of MXFP4 share a scale", size, fields.size(size)));
    }
  }
  read_experts(fields, config, 128);
  read_windows(fields, config, [](std::uint32_t layer) { return layer % 2 == 0; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
