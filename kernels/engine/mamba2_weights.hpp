// Tensors of Mamba-2 layers, which its families name alike.
#pragma once

#include <string>

#include "kernels/engine/weight_binder.hpp"

namespace kvroof {

// in_proj, conv1d, A_log, dt_bias, D, norm and out_proj below `mixer`, which ends with a dot. Stored are gate, x, B, C
// and steps, in this order.
void bind_mamba2(WeightBinder& binder, const ModelShape& shape, const std::string& mixer, StateWeights& weights);

}  // namespace kvroof
