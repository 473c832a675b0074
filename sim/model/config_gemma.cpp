#include "sim/model/config_gemma.hpp"

#include <cmath>

namespace kvroof {

ModelConfig read_gemma(ConfigFields& fields, const DecoderKeys& keys) {
  fields.defaults(R"({"max_position_embeddings": 8192, "head_dim": 256, "tie_word_embeddings": true,
                      "bos_token_id": 2, "eos_token_id": 1})");
  fields.only("use_bidirectional_attention", false, "attention to later tokens is not supported");
  ModelConfig config = read_decoder(fields, keys);
  if (!fields.has(keys.activation)) config.options.activation = Activation::kGeluTanh;
  config.options.norm_offset = 1;
  config.options.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.shape.hidden)));
  return config;
}

float read_softcap(ConfigFields& fields, std::string_view key) {
  return fields.has(key) ? static_cast<float>(fields.positive(key)) : 0.0F;
}

void read_gemma2_attention(ConfigFields& fields, ModelConfig& config) {
  config.shape.norms_per_layer = 4;
  const double scalar = fields.positive("query_pre_attn_scalar", 256.0);
  for (LayerRule& layer : config.options.layers) layer.scale = static_cast<float>(1 / std::sqrt(scalar));
  config.options.logit_softcap = read_softcap(fields, "final_logit_softcapping");
}

}  // namespace kvroof
