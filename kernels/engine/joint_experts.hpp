// Checkpoints that keep the experts of a layer together in two tensors, where their family's others have tensors of
// each.
#pragma once

#include <vector>

#include "kernels/engine/named_tensors.hpp"
#include "kernels/engine/weight_families.hpp"

namespace kvroof {

// Where the checkpoint has "….experts.gate_up_proj" in place of an expert's own tensors, binds that one
// [experts, 2 · ffn, hidden] and down_proj [experts, hidden, ffn] (Qwen3.5); or both with rows and columns changed
// (Qwen3-VL), where the shape of down_proj says so: with as many rows as columns it is taken as the former.
void bind_joint_experts(const NamedTensors& tensors, const ModelShape& shape, std::vector<TensorBinding>& bindings);

}  // namespace kvroof
