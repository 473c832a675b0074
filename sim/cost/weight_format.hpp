// How weights are stored: bits of a parameter with their scales, and what reading them costs beside 16-bit weights.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "sim/core/dtype.hpp"
#include "sim/device/device.hpp"
#include "sim/model/model_shape.hpp"
#include "sim/model/stored_format.hpp"

namespace kvroof {

struct WeightFormat {
  std::string_view name;
  double layer_bits = 16;      // of a parameter of a layer, scales and zero points included
  double expert_bits = 16;     // of a parameter of a routed expert
  double head_bits = 16;       // of the head
  double embedding_bits = 16;  // of the embedding and of position tables
  std::optional<DeviceField> peak;  // of its own products; nothing: they are computed in the activations' type
  // Where weights are unpacked to the activations' type: operations a parameter, at the rate of fp32 arithmetic.
  double unpack_operations = 0;
  // Where activations are quantised for products of the format's own type.
  double start_us = 0;       // what a product starts later, the kernel before it quantising
  double prompt_share = 1;   // of the peak, what a prompt reaches, beside that share for 16-bit products
  std::optional<DeviceField> share = {};  // of the peak, what products of any shape reach; nothing: as 16-bit ones
  double quantise_us = 0;  // what a product by itself starts later still, that quantises its inputs first
  std::optional<DeviceField> native = {};  // boards with this rate multiply it as it is stored, by wider activations
  bool plain_latent = false;  // checkpoints have the projections of latent attention, routers and the head in 16 bits
  std::optional<DeviceField> walk = {};  // microseconds for 1,024 columns of a product; nothing: reading hides them

  [[nodiscard]] bool quantised() const { return layer_bits < 16 || expert_bits < 16; }
};

// The formats that are not plain floating-point types: fp8, nvfp4, int4-g32-wo, Q4_K_M …
std::span<const WeightFormat> weight_formats();
// What the end of a checkpoint's name says of its weights: Qwen3-32B-AWQ, Llama-3.1-8B-Instruct-FP8-dynamic; nothing
// where it says nothing.
std::optional<WeightFormat> format_in_name(std::string_view checkpoint);

// "bf16", "fp8", "int8-wo", "Q4_K_M" as papers and engines spell them, in any case; nothing when none is meant.
std::optional<WeightFormat> parse_weight_format(std::string_view text);
// Of weights that are stored so; nothing for an empty one. A mixture that is not among weight_formats() is unpacked as
// 4-bit ones are.
std::optional<WeightFormat> weight_format_of(const StoredFormat& stored);
// A plain type: all parameters alike.
WeightFormat plain_format(DType type);

// The format as the model has it: where there are no experts, what packs experts alone packs the layers. Where there
// are, what such a format leaves at 16 bits has `beside_bits` in the files of some engines; 0: 16. Where latent
// attention stays at 16 bits, layer_bits are the mean.
WeightFormat format_in(const ModelShape& shape, WeightFormat format, double beside_bits = 0);

// Weights of the whole model, a tied head once.
Bytes weight_bytes(const ModelShape& shape, const WeightFormat& format);
// Of these, what one decoded token reads (active_parameters()).
Bytes active_weight_bytes(const ModelShape& shape, const WeightFormat& format);

}  // namespace kvroof
