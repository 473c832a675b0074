// A configuration for a shape that comes without a config.json.
#pragma once

#include "sim/model/config_json.hpp"

namespace kvroof {

// What a shape does not say is as in most models that have such a one: rotary embeddings of base 10000 over whole
// heads, SiLU in a gated MLP and GELU in a plain one, parallel residuals where a layer has one norm. The operators, and
// so time, bytes and memory, are those of the model; its text is not. Of a shape that is not_built() none is made.
ModelConfig config_of_shape(ModelShape shape);

// What of such a shape the engine does not run, or nothing.
std::string not_built(const ModelShape& shape);

// Gives the shape's unturned_layers a rotary rule that turns nothing, beside those that are there.
void leave_layers_unturned(ModelConfig& config);

}  // namespace kvroof
