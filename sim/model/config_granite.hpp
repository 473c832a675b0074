// What the generations of Granite share in config.json.
#pragma once

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// embedding_multiplier, residual_multiplier, logits_scaling, and attention_multiplier in the place of 1/√head_dim; each
// is 1 where it is absent, or the last one `attention`.
void read_granite_scales(ConfigFields& fields, ModelConfig& config, double attention = 1);

}  // namespace kvroof
