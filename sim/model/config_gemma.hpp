// What the three generations of Gemma share in config.json.
#pragma once

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// Norms that add 1 to their weights, embeddings times √hidden_size, a tied head, the tanh form of GELU. Activations are
// float in the CPU back ends; only where they are bf16 the published models round √hidden_size to bf16 first.
ModelConfig read_gemma(ConfigFields& fields, const DecoderKeys& keys);

// A cap, or 0 where there is none.
float read_softcap(ConfigFields& fields, std::string_view key);

// Of the second generation on: four norms a layer, query_pre_attn_scalar, a soft-cap of the logits.
void read_gemma2_attention(ConfigFields& fields, ModelConfig& config);

}  // namespace kvroof
