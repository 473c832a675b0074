// What the configurations of GPT-like decoders have in common; a family's file adds what is special.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "sim/model/config_fields.hpp"

namespace kvroof {

// Of keys that change the arithmetic in a way that is not built.
inline constexpr std::string_view kNotSupported = "this is not supported";

struct GptKeys {
  std::string_view family;  // model_type
  // Names of sizes; of several, any one may be in the file.
  std::initializer_list<std::string_view> layers, hidden, heads, positions;
  std::uint32_t default_positions = 2048;
  std::string_view norm_eps = "layer_norm_epsilon";
};

// As many KV heads as heads, each hidden / heads wide; two layer norms a layer; a plain MLP of 4 · hidden with the
// exact GELU; biases everywhere; attention scale 1/√head_dim; token ids. Families change what they do otherwise. Call
// fields.defaults() with the family's own first.
ModelConfig read_gpt(ConfigFields& fields, const GptKeys& keys);

}  // namespace kvroof
