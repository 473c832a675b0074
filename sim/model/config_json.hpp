// Hugging Face config.json → ModelShape and the options that the engine needs.
#pragma once

#include <string_view>

#include "sim/core/error.hpp"
#include "sim/model/model_shape.hpp"

namespace kvroof {

// What a forward pass must know beside the shape.
struct ModelOptions {
  float norm_eps = 1e-5F;
  double rope_theta = 10000.0;
  std::uint32_t rotary_dims = 0;  // leading dimensions of a head that are rotated
  float attention_scale = 0;      // multiplies q·k; 1/√head_dim unless the family says otherwise
  std::vector<std::int64_t> bos_ids;
  std::vector<std::int64_t> eos_ids;
};

struct ModelConfig {
  ModelShape shape;
  ModelOptions options;
};

// Accepts old and new key names (torch_dtype and dtype; rope_theta and rope_parameters). Refuses, naming key and value:
// an unknown model_type (with the known ones and "did you mean"), unsupported options (rope_scaling other than null or
// default, …), missing or impossible sizes (0, negative, above 2^24, heads not a multiple of kv_heads).
Result<ModelConfig> parse_config_json(std::string_view text);

// One entry a family, sorted by model_type; a new family is one file and one line in config_json.cpp's table.
struct ConfigFamily {
  std::string_view model_type;
  Result<ModelConfig> (*parse)(std::string_view config_json);
};

}  // namespace kvroof
