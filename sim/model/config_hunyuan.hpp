// What Hunyuan's dense models and those with experts share in config.json.
#pragma once

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// LLaMA's decoder with norms of the heads of q and k after rotary embedding, whose base may be multiplied once and for
// all: rope_scaling of type "dynamic" with an alpha.
ModelConfig read_hunyuan(ConfigFields& fields, std::string_view family);

}  // namespace kvroof
