// Gemma 3n, the text model: layers that slide and every fifth that sees everything; the last ones attend to the rows of
// earlier ones; an embedding of each layer, narrow residual matrices (Laurel) and several residual streams (AltUp).
#include "sim/model/config_decoder.hpp"
#include "sim/model/config_gemma.hpp"
#include "sim/model/config_layers.hpp"
#include "sim/model/families.hpp"

namespace kvroof {

Result<ModelConfig> parse_gemma3n_config(std::string_view config_json) {
  ConfigFields fields(config_json);
  fields.defaults(R"({"vocab_size": 262400, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35,
                      "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256, "tie_word_embeddings": true,
                      "max_position_embeddings": 32768, "sliding_window": 512, "num_kv_shared_layers": 15,
                      "hidden_size_per_layer_input": 256, "final_logit_softcapping": 30.0,
                      "bos_token_id": 2, "eos_token_id": 1})");
  fields.forget({"rope_parameters", "rope_scaling"});
  fields.unify("intermediate_size");
  ModelConfig config = read_decoder(fields, {.family = "gemma3n_text", .activation = "hidden_activation"});
  ModelShape& s = config.shape;
  s.qk_norm = QkNorm::kHead;
  s.norms_per_layer = 4;
  config.options.logit_softcap = read_softcap(fields, "final_logit_softcapping");
  const std::vector<bool> sliding =
      read_layer_list(fields, {"layer_types", "sliding_attention", "full_attention"}, s.layers,
                      [](std::uint32_t layer) { return (layer + 1) % 5 != 0; });
  set_windows(s, sliding, fields.size("sliding_window"));
  read_sharing(fields, s, sliding);
  read_layer_embedding(fields, s);
  const std::uint32_t streams = fields.size("altup_num_inputs", 4U, 16);
  const std::uint32_t rank = fields.size("laurel_rank", 64U, 1U << 10);
  if (s.hidden > 1U << 13) fields.fail(fmt::format("hidden_size is {}, expected at most {}", s.hidden, 1U << 13));
  // Of AltUp coefficients, a router with its norm and a scale; of Laurel two matrices and a norm.
  s.layer_extras = streams * streams * (1 + streams) + s.hidden * (streams + 2) + s.hidden * (2 * rank + 1);
  s.model_extras = 2 * (streams - 1) * s.hidden * s.hidden;
  return finish_config(fields, std::move(config));
}

}  // namespace kvroof
