#include "sim/model/config_exaone.hpp"

namespace kvroof {

void read_exaone_windows(ConfigFields& fields, ModelConfig& config) {
  if (!fields.has("sliding_window")) return;
  // Published files have a text ("LLLG") there, and layer_types beside it.
  const std::uint32_t period = fields.has("layer_types") ? 1 : fields.size("sliding_window_pattern");
  set_turned_layers(config,
                    read_windows(fields, config, [&](std::uint32_t layer) { return (layer + 1) % period != 0; }));
}

}  // namespace kvroof
