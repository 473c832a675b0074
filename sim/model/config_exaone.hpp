// What configurations of EXAONE's later families have in common.
#pragma once

#include "sim/model/config_decoder.hpp"

namespace kvroof {

// sliding_window, layer_types or sliding_window_pattern: layers that see everything know no positions.
void read_exaone_windows(ConfigFields& fields, ModelConfig& config);

}  // namespace kvroof
