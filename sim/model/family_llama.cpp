// LLaMA 1 to 3: RMS norms, half-split rotary embedding, grouped queries, gated MLP, optional biases, tied or untied
// head. The keys and their defaults are those of Hugging Face's LlamaConfig, old (2023) and new (rope_parameters,
// dtype).
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_llama_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"bos_token_id": 1, "eos_token_id": 2})");
  return finish_config(fields, read_decoder(fields, {.family = "llama", .mlp_bias = true}));
}

}  // namespace kvroof
