// Matrices that checkpoints store in FP8 (E4M3), and the tensors of their scales.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/engine/named_tensors.hpp"
#include "kernels/engine/weight_families.hpp"
#include "sim/model/config_json.hpp"

namespace kvroof {

// Tells each binding of a matrix in FP8 where its scales are (NAME_scale_inv or NAME_scale: numbers are multiplied by
// either) and what they are of: a block as the configuration says, a row, or all. Which matrices are plain, their types
// say. Throws Error for scales whose shape or type is none of these. Those that are missing keep their name, which no
// tensor has.
void bind_fp8_scales(const NamedTensors& tensors, const Fp8Storage& storage, std::vector<TensorBinding>& bindings);

// Scales of activations and of a KV cache, which lie beside the weights.
bool is_activation_scale(std::string_view tensor);

}  // namespace kvroof
