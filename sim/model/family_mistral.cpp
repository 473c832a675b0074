// Mistral and Ministral: LLaMA with a sliding window in every layer, or in those that layer_types names. An absent
// sliding_window means 4096, a null none.
#include "sim/model/config_decoder.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_mistral_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(
      R"({"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096, "bos_token_id": 1,
          "eos_token_id": 2})");
  ModelConfig config = read_decoder(fields, {.family = "mistral", .attention_bias = false});
  read_windows(fields, config, [](std::uint32_t) { return true; });
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
