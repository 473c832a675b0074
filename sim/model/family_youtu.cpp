// Youtu-LLM: DeepSeek-V3's latent attention, with an MLP of one size in every layer.
#include "sim/model/config_deepseek.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_youtu_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 32,
                      "num_attention_heads": 16, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
                      "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                      "v_head_dim": 128, "tie_word_embeddings": true, "bos_token_id": 128000,
                      "eos_token_id": 128001})");
  return finish_config(fields, read_latent_decoder(fields));
}

}  // namespace kvroof
