// Rotary embedding in config.json: rope_theta with rope_scaling (old), or rope_parameters (new) → RotaryRule.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "sim/model/config_fields.hpp"
#include "sim/model/rotary.hpp"

namespace kvroof {

struct RotaryRequest {
  RotaryStyle style = RotaryStyle::kHalfSplit;
  std::uint32_t dims = 0;            // of the part that may turn
  bool partial = false;              // partial_rotary_factor may be below 1
  std::string_view layer_type = {};  // whose parameters count where rope_parameters has an object for each type
  // Older names, which some families have outside of rope_parameters.
  std::string_view theta_key = "rope_theta";
  std::string_view share_key = "partial_rotary_factor";
  // Keys in the object of its parameters that the family reads itself.
  std::span<const std::string_view> own_keys = {};
};

// Kinds: default, linear, llama3, yarn, longrope ("su"), and dynamic, which changes nothing up to
// max_position_embeddings. Refuses, naming key and value, every other kind and every key that
// its kind does not know.
RotaryRule read_rotary(ConfigFields& fields, const RotaryRequest& request);

// Key of the object that holds the parameters: rope_parameters, one in it for the layer type, or rope_scaling.
std::string rotary_section(const ConfigFields& fields, std::string_view layer_type = {});

// A YaRN section's ".mscale" or ".mscale_all_dim"; 0 where it says nothing, as a 0 there does.
double read_yarn_mscale(ConfigFields& fields, const std::string& section, std::string_view key);

// Tokens that a YaRN-scaled embedding is made for, which checkpoints do not repeat in max_position_embeddings; else 0.
std::uint32_t yarn_reach(ConfigFields& fields);

}  // namespace kvroof
